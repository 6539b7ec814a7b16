"""How many sessions may be active at a time: those with an open episode, which silence ends."""

from __future__ import annotations

import time

from openclaw_rl.proxy.http.limits import LimitFigures, RateLimited
from openclaw_rl.shared.journal import AsyncJournal

_LOOK_SECONDS = 1.0
"""A full house looks into the journal at most this often."""
_LONGEST_WAIT = 60.0


class SessionLimit:
    """At most `places` active sessions (0: any number). A session that is active is never refused; which ones are is
    known from memory, and from the journal when all places seem taken. `request_seconds`: by then the first turn of a
    session that was let in is in the journal, or never will be.
    """

    def __init__(self, journal: AsyncJournal, places: int, idle_seconds: float, request_seconds: float) -> None:
        self.refused = 0
        self._journal = journal
        self._places = places
        self._idle_seconds = idle_seconds
        self._young_seconds = request_seconds
        self._active: dict[str, float] = {}  # when each was let in; 0.0 for those that the journal told
        self._looked = -_LOOK_SECONDS
        self._known = False

    def figures(self) -> LimitFigures | None:
        """How it is now; `None` without a limit."""
        return LimitFigures(self._places, len(self._active), 0, self.refused) if self._places else None

    async def admit(self, session_id: str) -> None:
        """Let a main turn of this session in. Raises `RateLimited` if that would begin one session too many."""
        if not self._places or session_id in self._active:
            return
        if not self._known or (len(self._active) >= self._places and time.monotonic() > self._looked + _LOOK_SECONDS):
            await self._look()
        if session_id not in self._active and len(self._active) >= self._places:
            self.refused += 1
            wait = max(1.0, min(_LONGEST_WAIT, self._idle_seconds / 4))
            raise RateLimited(
                f"{self._places} sessions are active (max_sessions), and this request would begin another. End one "
                f"(X-Session-Done, or POST /rl/session-done), wait until one has been silent for "
                f"{self._idle_seconds:g} s (session_idle_seconds), or raise max_sessions.",
                retry_after=wait,
            )
        self._active.setdefault(session_id, time.monotonic())

    def left(self, session_id: str) -> None:
        """A session's episode has ended."""
        self._active.pop(session_id, None)

    async def _look(self) -> None:
        """Take over from the journal which sessions are active. Raises `JournalError`."""
        self._looked = time.monotonic()
        told = await self._journal.active_sessions()
        young = time.monotonic() - self._young_seconds
        self._active = dict.fromkeys(told, 0.0) | {name: at for name, at in self._active.items() if at > young}
        self._known = True
