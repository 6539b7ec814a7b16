"""API keys: sent as a bearer token or `x-api-key`, compared in constant time; and the scope that a request needs."""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence

import msgspec

from openclaw_rl.shared.api_keys import KeyFile, KeyScope
from openclaw_rl.shared.errors import ConfigError, Forbidden, Unauthorized
from openclaw_rl.shared.owners import SERVICE
from openclaw_rl.shared.process import is_local_name, is_loopback

OPEN_PATHS = frozenset(("/healthz", "/readyz"))

_SIGNALS = ("/feedback", "/outcome", "/session-done")


class Caller(msgspec.Struct, frozen=True):
    """The sender of a request: the index of its key, those of the data folder after those of the settings (0 where no
    keys are set), and the key's owner. An `admin` may see and change what others own.
    """

    key: int = 0
    owner: str = SERVICE
    admin: bool = True

    def sees(self, owner: str) -> bool:
        """True if what this owner made is there for the caller."""
        return self.admin or self.owner == owner


class Admission:
    """Decides which requests may pass: by the keys of the settings, which may do everything, and those of the data
    folder within their scopes.
    """

    def __init__(self, keys: Sequence[str], stored: KeyFile | None = None) -> None:
        self._keys = keys
        self._stored = stored

    def admit(self, headers: Mapping[str, str], method: str, path: str) -> Caller:
        """The caller by the key that the lower-case `headers` carry. Raises `Unauthorized`, and `Forbidden` for a key
        without the scope. Where no keys are set, `Host` has to name this machine: the page of a site whose name points
        here knows no key.
        """
        if not self._keys:
            if not is_local_name(headers.get("host", "")):
                raise Forbidden(
                    f"This service has no API key, and {headers['host']!r} is not its address. Ask 127.0.0.1 or "
                    "localhost, or set api_key, which allows any name.",
                    code="foreign_host",
                )
            return Caller()
        scheme, _, token = headers.get("authorization", "").partition(" ")
        sent = token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
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
        return Caller(len(self._keys) + stored.number - 1, stored.owned_by, stored.allows("admin"))


def scopes_of(method: str, path: str) -> tuple[KeyScope, ...]:
    """The scopes of which a request needs one. Routes that are not named here need `admin`."""
    if path == "/metrics":
        return ("read",)
    control = path.removeprefix("/v1") if path.startswith("/v1/rl/") else path
    if not control.startswith("/rl/"):
        return ("chat",) if path.startswith("/v1/") else ("admin",)
    if method == "POST" and control.removeprefix("/rl") in _SIGNALS:
        return ("feedback",)
    if method not in ("GET", "HEAD"):
        return ("admin",)
    # A history that only names an answer is completed with the client's key. Its id was given to the client alone.
    return ("read", "chat") if control.startswith("/rl/turns/") else ("read",)


def check_binding(host: str, key: str) -> None:
    """Raise `ConfigError` when an address that others can reach would be served without a key."""
    if not key and not is_loopback(host):
        raise ConfigError(
            f"host = {host!r} can be reached from other machines, so an API key is needed: set OPENCLAW_RL_API_KEY, "
            "or bind 127.0.0.1."
        )
