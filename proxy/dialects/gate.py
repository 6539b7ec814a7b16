"""The way to the adapter process: its limit, and the mark by which the chat route knows the adapter's requests.

Only the proxy says which dialect a turn came in: it gives the adapter a mark with a secret, and gets it back on the
chat route. A mark that a client makes up is ignored.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping

from openclaw_rl.proxy.dialects.headers import MARK_HEADER
from openclaw_rl.proxy.dialects.process import AdapterProcess
from openclaw_rl.proxy.http.limits import ConcurrencyLimit

CHAT = "chat"
PLACES = 64


class DialectGate:
    """The adapter process and its limit."""

    def __init__(self) -> None:
        self.process = AdapterProcess()
        self.limit = ConcurrencyLimit(PLACES)
        self._secret = secrets.token_hex(16)

    def dialect_of(self, headers: Mapping[str, str]) -> str:
        """The dialect of a request on the chat route."""
        secret, _, name = headers.get(MARK_HEADER, "").partition(" ")
        return name if name and hmac.compare_digest(secret.encode(), self._secret.encode()) else CHAT

    def mark(self, name: str) -> str:
        """The mark of a dialect."""
        return f"{self._secret} {name}"
