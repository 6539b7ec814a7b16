"""Limit of active sessions: those with an open episode."""

from __future__ import annotations

import time

from openclaw_rl.proxy.http.limits import LimitFigures, RateLimited
from openclaw_rl.shared.journal import AsyncJournal

_LOOK_SECONDS = 1.0
"""The journal is asked at most this often while all places are taken."""
_LONGEST_WAIT = 60.0


class SessionLimit:
    """At most `places` active sessions (0: any number); an active session is never refused. They are known from memory,
    and from the journal when all places seem taken. After `request_seconds` the first turn of an admitted session is in
    the journal, or never will be.
    """

    def __init__(self, journal: AsyncJournal, places: int, idle_seconds: float, request_seconds: float) -> None:
        self.refused = 0
        self._journal = journal
        self._places = places
        self._idle_seconds = idle_seconds
        self._young_seconds = request_seconds
        self._active: dict[str, float] = {}  # when each was admitted; 0.0 for those from the journal
        self._looked = -_LOOK_SECONDS
        self._known = False

    def figures(self) -> LimitFigures | None:
        """Its present state; `None` without a limit."""
        return LimitFigures(self._places, len(self._active), 0, self.refused) if self._places else None

    async def admit(self, session_id: str) -> None:
        """Admit a main turn of this session. Raises `RateLimited` if that would begin one session too many."""
        if not self._places or session_id in self._active:
            return
        if not self._known or (len(self._active) >= self._places and time.monotonic() > self._looked + _LOOK_SECONDS):
            await self._look()
        if session_id not in self._active and len(self._active) >= self._places:
            self.refused += 1
            raise RateLimited(
                f"{self._places} sessions are active (max_sessions), and this request would begin another. End one "
                f"(X-Session-Done, or POST /rl/session-done), wait until one has been silent for "
                f"{self._idle_seconds:g} s (session_idle_seconds), or raise max_sessions.",
                retry_after=max(1.0, min(_LONGEST_WAIT, self._idle_seconds / 4)),
            )
        self._active.setdefault(session_id, time.monotonic())

    def left(self, session_id: str) -> None:
        """Free the place of a session whose episode has ended."""
        self._active.pop(session_id, None)

    async def _look(self) -> None:
        """Take the active sessions from the journal. Raises `JournalError`."""
        self._looked = time.monotonic()
        recorded = await self._journal.active_sessions()
        young = time.monotonic() - self._young_seconds
        self._active = dict.fromkeys(recorded, 0.0) | {name: at for name, at in self._active.items() if at > young}
        self._known = True
