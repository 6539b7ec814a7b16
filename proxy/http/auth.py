"""API keys: sent as a bearer token or `x-api-key`, compared in constant time; and the scope that a request needs."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping, Sequence

import msgspec

from openclaw_rl.proxy.http import episode_keys
from openclaw_rl.proxy.http.episode_keys import EpisodeClaim
from openclaw_rl.shared.api_keys import KeyFile, KeyScope
from openclaw_rl.shared.errors import ConfigError, Forbidden, Unauthorized
from openclaw_rl.shared.journal import OpenAttempt
from openclaw_rl.shared.owners import SERVICE, owner_of
from openclaw_rl.shared.process import is_local_name, is_loopback

OPEN_PATHS = frozenset(("/healthz", "/readyz"))

_SIGNALS = ("/feedback", "/outcome", "/session-done")


class Caller(msgspec.Struct, frozen=True):
    """The sender of a request: the index of its key, those of the data folder after those of the settings (0 where no
    keys are set), and the key's owner. An `admin` may see and change what others own. An agent with the key of an
    episode has the place of the key that began it; `claim` is what its key says, `attempt` the episode once the journal
    has confirmed it.
    """

    key: int = 0
    owner: str = SERVICE
    admin: bool = True
    claim: EpisodeClaim | None = None
    attempt: OpenAttempt | None = None

    def sees(self, owner: str) -> bool:
        """True if what this owner made is there for the caller."""
        return self.admin or self.owner == owner


class Admission:
    """Decides which requests may pass: by the keys of the settings, which may do everything, and those of the data
    folder within their scopes; keys of episodes open the model routes alone. `is_routed`: whether a request with these
    headers comes from our own adapter process, on a client's behalf.
    """

    def __init__(
        self,
        keys: Sequence[str],
        stored: KeyFile | None = None,
        is_routed: Callable[[Mapping[str, str]], bool] = lambda headers: False,
    ) -> None:
        self._keys = keys
        self._stored = stored
        self._is_routed = is_routed

    def admit(self, headers: Mapping[str, str], method: str, path: str) -> Caller:
        """The caller by the key that the lower-case `headers` carry. Raises `Unauthorized`, and `Forbidden` for a key
        without the scope. Where no keys are set, `Host` has to name this machine: the page of a site whose name points
        here knows no key.
        """
        if not self._keys and not is_local_name(headers.get("host", "")):
            raise Forbidden(
                f"This service has no API key, and {headers['host']!r} is not its address. Ask 127.0.0.1 or "
                "localhost, or set api_key, which allows any name.",
                code="foreign_host",
            )
        scheme, _, token = headers.get("authorization", "").partition(" ")
        sent = token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
        if sent.startswith(episode_keys.PREFIX):
            return self._admit_agent(sent, headers, method, path)
        if not self._keys:
            return Caller()
        if not sent:
            raise Unauthorized("No API key was sent: put it in the header 'Authorization: Bearer KEY'.")
        found = [index for index, key in enumerate(self._keys) if hmac.compare_digest(sent.encode(), key.encode())]
        if found:
            return Caller(found[0])
        stored = self._stored.find(sent) if self._stored is not None else None
        if stored is None:
            raise Unauthorized("The API key is wrong. The service's own is in the file api_key of its data folder.")
        scopes = scopes_of(method, path)
        if not any(map(stored.allows, scopes)):
            raise Forbidden(
                f"The key {stored.name!r} has no scope {' or '.join(scopes)}, which {method} {path} needs (it has "
                f"{', '.join(stored.scopes)}). Make one that has: openclaw-rl keys create"
            )
        return Caller(self._place(stored.number), stored.owned_by, stored.allows("admin"))

    def episode_key(self, caller: Caller, attempt: OpenAttempt) -> str:
        """A key of an attempt's episode, void with the key of the caller, who began it. Where no keys are set, it only
        says which session an agent is in: everyone may do everything.
        """
        of_settings = caller.key < len(self._keys) or not self._keys
        number = 0 if of_settings else caller.key - len(self._keys) + 1
        claim = EpisodeClaim(attempt.session_id, attempt.episode, attempt.started, number)
        return episode_keys.issue_key(claim, self._secrets[caller.key if of_settings else 0])

    @property
    def _secrets(self) -> Sequence[str]:
        return self._keys or ("",)

    def _place(self, number: int) -> int:
        """The index of a stored key."""
        return len(self._keys) + number - 1

    def _admit_agent(self, sent: str, headers: Mapping[str, str], method: str, path: str) -> Caller:
        """The caller with the key of an episode, of which the journal has to confirm that it is open."""
        found = episode_keys.read_key(sent, self._secrets)
        if found is None:
            raise Unauthorized("The API key is wrong: this service made no such key of an episode.")
        claim, place = found
        if claim.number:
            stored = self._stored.numbered(claim.number) if self._stored is not None else None
            if stored is None or not stored.allows("chat"):
                raise Unauthorized("The API key is void: the key that began its episode was revoked.")
            place = self._place(claim.number)
        # Our adapter process completes a history that only names an answer.
        completes = "chat" in scopes_of(method, path) and method == "GET" and self._is_routed(headers)
        if not completes and (_control(path).startswith("/rl/") or scopes_of(method, path) != ("chat",)):
            raise Forbidden(f"The key of an episode opens the model routes alone, not {method} {path}.")
        return Caller(place, owner_of(claim.session_id), False, claim)


def scopes_of(method: str, path: str) -> tuple[KeyScope, ...]:
    """The scopes of which a request needs one. Routes that are not named here need `admin`."""
    if path == "/metrics":
        return ("read",)
    control = _control(path)
    if not control.startswith("/rl/"):
        return ("chat",) if path.startswith("/v1/") else ("admin",)
    if method == "POST" and control.removeprefix("/rl") in _SIGNALS:
        return ("feedback",)
    if method == "POST" and control == "/rl/session-start":  # the key that it gives opens the model routes
        return ("chat",)
    if method not in ("GET", "HEAD"):
        return ("admin",)
    # A history that only names an answer is completed with the client's key. Its id was given to the client alone.
    return ("read", "chat") if control.startswith("/rl/turns/") else ("read",)


def _control(path: str) -> str:
    """The path of a control route by its short name; any other path as it is."""
    return path.removeprefix("/v1") if path.startswith("/v1/rl/") else path


def check_binding(host: str, key: str) -> None:
    """Raise `ConfigError` when an address that others can reach would be served without a key."""
    if not key and not is_loopback(host):
        raise ConfigError(
            f"host = {host!r} can be reached from other machines, so an API key is needed: set OPENCLAW_RL_API_KEY, "
            "or bind 127.0.0.1."
        )
