"""API keys: sent as a bearer token or `x-api-key`, compared in constant time."""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence

from openclaw_rl.shared.errors import ConfigError, Unauthorized
from openclaw_rl.shared.process import is_loopback

OPEN_PATHS = frozenset(("/healthz", "/readyz"))


def authorize(headers: Mapping[str, str], keys: Sequence[str]) -> int:
    """The index of the key that the lower-case `headers` carry; 0 where no keys are set. Raises `Unauthorized`."""
    if not keys:
        return 0
    scheme, _, token = headers.get("authorization", "").partition(" ")
    sent = token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
    if not sent:
        raise Unauthorized("No API key was sent: put it in the header 'Authorization: Bearer KEY'.")
    found = [index for index, key in enumerate(keys) if hmac.compare_digest(sent.encode(), key.encode())]
    if not found:
        raise Unauthorized("The API key is wrong; `openclaw-rl serve` prints the right one when it starts.")
    return found[0]


def check_binding(host: str, key: str) -> None:
    """Raise `ConfigError` when an address that others can reach would be served without a key."""
    if not key and not is_loopback(host):
        raise ConfigError(
            f"host = {host!r} can be reached from other machines, so an API key is needed: set OPENCLAW_RL_API_KEY, "
            "or bind 127.0.0.1."
        )
