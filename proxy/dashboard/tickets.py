"""Tickets with which a browser signs in once, soon after a command in the terminal asked for one."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable

from openclaw_rl.proxy.http.auth import Caller
from openclaw_rl.shared.records import now

TICKET_SECONDS = 300.0


class Tickets:
    """The tickets that may still be used, by their digests, in memory alone: a restart voids them."""

    def __init__(self, clock: Callable[[], float] = now) -> None:
        self._clock = clock
        self._open: dict[str, tuple[Caller, float]] = {}

    def issue(self, caller: Caller) -> tuple[str, float]:
        """A ticket for the caller, and its end in Unix seconds."""
        self._open = {digest: entry for digest, entry in self._open.items() if entry[1] > self._clock()}
        ticket, end = secrets.token_urlsafe(32), self._clock() + TICKET_SECONDS
        self._open[_digest(ticket)] = caller, end
        return ticket, end

    def redeem(self, ticket: str) -> Caller | None:
        """The caller that asked for the ticket, at its first use; `None` for one that was used, is late or unknown."""
        caller, end = self._open.pop(_digest(ticket), (None, 0.0))
        return caller if end > self._clock() else None


def _digest(ticket: str) -> str:
    return hashlib.sha256(ticket.encode(errors="surrogateescape")).hexdigest()
