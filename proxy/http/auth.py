"""API keys: sent as a bearer token or `x-api-key`, compared in constant time; and the scope that a request needs."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping, Sequence

import msgspec

from openclaw_rl.proxy.http import episode_keys
from openclaw_rl.proxy.http.episode_keys import EpisodeClaim
from openclaw_rl.proxy.http.tokens import PREFIX, TokenFile
from openclaw_rl.shared.api_keys import KeyFile, KeyScope, StoredKey
from openclaw_rl.shared.errors import ConfigError, Forbidden, Unauthorized
from openclaw_rl.shared.journal import OpenAttempt
from openclaw_rl.shared.owners import SERVICE, owner_of
from openclaw_rl.shared.process import is_loopback

OPEN_PATHS = frozenset(("/healthz", "/readyz"))
TOKEN = "/rl/dashboard/token"
CLIENT_SCOPES: tuple[KeyScope, ...] = ("chat", "feedback")
"""What the keys of clients may do, next to reading `/rl/status`."""

_SIGNALS = ("/feedback", "/outcome", "/session-done")


class Caller(msgspec.Struct, frozen=True):
    """The sender of a request: the index of its key, those of the data folder after those of the settings (0 where no
    keys are set), and the key's owner. An `admin` may see and change what others own. `signed_in`: by a token of the
    dashboard instead of the key itself. An agent with the key of an episode has the place of the key that began it;
    `claim` is what its key says, `attempt` the episode once the journal has confirmed it.
    """

    key: int = 0
    owner: str = SERVICE
    admin: bool = True
    claim: EpisodeClaim | None = None
    attempt: OpenAttempt | None = None
    signed_in: bool = False

    def sees(self, owner: str) -> bool:
        """True if what this owner made is there for the caller."""
        return self.admin or self.owner == owner


class _Key(msgspec.Struct, frozen=True):
    """A key that the service knows: its caller, what it may do, its name ("" for one of the settings), and the text
    that signs what is derived from it.
    """

    caller: Caller
    scopes: tuple[KeyScope, ...]
    name: str
    secret: str

    def allows(self, scopes: Sequence[KeyScope]) -> bool:
        """True if the key has one of these scopes; `admin` has all."""
        return "admin" in self.scopes or not set(scopes).isdisjoint(self.scopes)


class Admission:
    """Decides which requests may pass. `keys` are those of clients; where there is no `admin_key`, they may do
    everything. Those of the data folder do what their scopes say, tokens of the dashboard what their key may, and keys
    of episodes open the model routes alone. `is_routed`: whether a request with these headers comes from our own
    adapter process, on a client's behalf.
    """

    def __init__(
        self,
        keys: Sequence[str],
        stored: KeyFile | None = None,
        is_routed: Callable[[Mapping[str, str]], bool] = lambda headers: False,
        *,
        admin_key: str = "",
        tokens: TokenFile | None = None,
    ) -> None:
        self._keys = [*keys, *([admin_key] if admin_key and admin_key not in keys else [])]
        self._admin_key = admin_key
        self._stored = stored
        self._is_routed = is_routed
        self._tokens = tokens

    def admit(self, headers: Mapping[str, str], method: str, path: str) -> Caller:
        """The caller by the key that the lower-case `headers` carry. Raises `Unauthorized`, and `Forbidden` for a key
        without the scope.
        """
        sent = sent_key(headers)
        scopes = scopes_of(method, path)
        # Our adapter process completes a history that only names an answer. Its id was given to the client alone.
        completes = method == "GET" and _control(path).startswith("/rl/turns/") and self._is_routed(headers)
        if completes:
            scopes = (*scopes, "chat")
        if sent.startswith(episode_keys.PREFIX):
            agent = self._admit_agent(sent)
            if not completes and (scopes != ("chat",) or _control(path).startswith("/rl/")):
                raise Forbidden(f"The key of an episode opens the model routes alone, not {method} {path}.")
            return agent
        if not self._keys:
            return Caller()
        key = self._find(sent)
        if not key.allows(scopes):
            raise Forbidden(_refusal(key, f"{method} {path}", scopes))
        return key.caller

    def sign_in(self, sent: str) -> Caller:
        """The caller with a key that opens the dashboard. Raises `Unauthorized`, and `Forbidden` for a key that may not
        read.
        """
        if not self._keys:
            return Caller()
        if sent.startswith((PREFIX, episode_keys.PREFIX)):
            raise Unauthorized("Signing in takes a key, not what was derived from one.")
        key = self._find(sent)
        if not key.allows(("read",)):
            raise Forbidden(_refusal(key, "The dashboard", ("read",)))
        return key.caller

    def issue_token(self, caller: Caller, seconds: float) -> tuple[str, float]:
        """A token with the rights of the caller's key, and its end (Unix seconds). Raises `Unauthorized` if that key
        was revoked meanwhile.
        """
        assert self._tokens is not None
        number = self._number(caller)
        secrets = [key.secret for key in self._numbered(number) if key.caller.key == caller.key] if self._keys else [""]
        if not secrets:
            raise Unauthorized("The key that asked for this ticket was revoked.")
        return self._tokens.issue(number, secrets[0], seconds)

    def keep_token(self, token: str, seconds: float) -> tuple[Caller, float]:
        """The caller with a token, which now ends this long after it began, and that end. Raises `Unauthorized`."""
        assert self._tokens is not None
        caller = self._of_token(token).caller if self._keys else Caller()
        return caller, self._tokens.keep(token, seconds)

    def revoke_tokens(self, token: str | None) -> int:
        """End a token, or all of them; the number that ended."""
        assert self._tokens is not None
        return self._tokens.revoke(token)

    def _find(self, sent: str) -> _Key:
        """The key, or that of a token. Raises `Unauthorized`."""
        if not sent:
            raise Unauthorized("No API key was sent: put it in the header 'Authorization: Bearer KEY'.")
        if sent.startswith(PREFIX):
            return self._of_token(sent)
        for index, key in enumerate(self._keys):
            if hmac.compare_digest(sent.encode(), key.encode()):
                return self._of_settings(index)
        stored = self._stored.find(sent) if self._stored is not None else None
        if stored is None:
            raise Unauthorized(
                "The API key is wrong. The service's own are in the files api_key (clients) and admin_key of its data "
                "folder."
            )
        return self._of_folder(stored)

    def _of_token(self, token: str) -> _Key:
        stored = self._tokens.find(token) if self._tokens is not None else None
        for key in self._numbered(stored.number) if stored is not None else ():
            if stored is not None and stored.is_of(token, key.secret):
                return msgspec.structs.replace(key, caller=msgspec.structs.replace(key.caller, signed_in=True))
        raise Unauthorized("The sign-in is over: it expired, was ended, or its key is gone.", code="signed_out")

    def _numbered(self, number: int) -> list[_Key]:
        """The keys of the settings for 0, else the stored key of this number, if it is not revoked."""
        if not number:
            return [self._of_settings(index) for index in range(len(self._keys))]
        stored = self._stored.numbered(number) if self._stored is not None else None
        return [] if stored is None else [self._of_folder(stored)]

    def _of_settings(self, index: int) -> _Key:
        key = self._keys[index]
        admin = not self._admin_key or key == self._admin_key
        return _Key(Caller(index, admin=admin), ("admin",) if admin else CLIENT_SCOPES, "", key)

    def _of_folder(self, stored: StoredKey) -> _Key:
        caller = Caller(self._place(stored.number), stored.owned_by, stored.allows("admin"))
        return _Key(caller, stored.scopes, stored.name, stored.digest)

    def episode_key(self, caller: Caller, attempt: OpenAttempt) -> str:
        """A key of an attempt's episode, void with the key of the caller, who began it. Where no keys are set, it only
        says which session an agent is in: everyone may do everything.
        """
        number = self._number(caller)
        claim = EpisodeClaim(attempt.session_id, attempt.episode, attempt.started, number)
        return episode_keys.issue_key(claim, self._secrets[0 if number else caller.key])

    @property
    def _secrets(self) -> Sequence[str]:
        return self._keys or ("",)

    def _number(self, caller: Caller) -> int:
        """The number of the caller's key among the stored ones, 0 for a key of the settings."""
        return max(0, caller.key - len(self._keys) + 1) if self._keys else 0

    def _place(self, number: int) -> int:
        """The index of a stored key."""
        return len(self._keys) + number - 1

    def _admit_agent(self, sent: str) -> Caller:
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
        return Caller(place, owner_of(claim.session_id), False, claim)


def sent_key(headers: Mapping[str, str]) -> str:
    """The key or token that the lower-case headers carry, "" without any."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")


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
    if (method, control) == ("DELETE", TOKEN):  # ends the sign-in that sends it
        return ("read",)
    if method not in ("GET", "HEAD"):
        return ("admin",)
    return ("read", *CLIENT_SCOPES) if control == "/rl/status" else ("read",)


def needs_no_key(method: str, path: str) -> bool:
    """True for health, and for signing in, whose body brings the ticket or the key."""
    return path in OPEN_PATHS or (method == "POST" and _control(path) == TOKEN)


def is_sign_in(path: str) -> bool:
    """True for the routes by which a person signs in and out."""
    return _control(path).startswith("/rl/dashboard/")


def _refusal(key: _Key, action: str, scopes: Sequence[KeyScope]) -> str:
    """The message for a key without these scopes."""
    if key.name:
        return (
            f"The key {key.name!r} has no scope {' or '.join(scopes)}, which {action} needs (it has "
            f"{', '.join(key.scopes)}). Make one that has: openclaw-rl keys create"
        )
    further = "" if scopes == ("admin",) else f", or a key with the scope {' or '.join(scopes)} (openclaw-rl keys)"
    return (
        f"{action} takes the admin key{further}. This is a client key, which chats, sends feedback and outcomes, and "
        "reads /rl/status. The admin key is in the file admin_key of the data folder, or in OPENCLAW_RL_ADMIN_KEY."
    )


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
