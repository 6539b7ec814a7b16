"""Sessions and their episodes: ended by request or by silence, looked up, forgotten; and the limit of active ones."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from dataclasses import dataclass

from openclaw_rl.proxy.conversation.placement import Conversations
from openclaw_rl.proxy.conversation.recorder import Recorder
from openclaw_rl.proxy.http.limits import LimitFigures, RateLimited
from openclaw_rl.shared.errors import JournalError, NotFound
from openclaw_rl.shared.journal import AsyncJournal, Forgotten, OldEpisode, OpenAttempt, TurnRef
from openclaw_rl.shared.journal.sessions import FRESH_SECONDS
from openclaw_rl.shared.records import now

log = logging.getLogger(__name__)

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


ERASING_SECONDS = 2.0
"""Seconds between two tries to erase what a reader of the journal keeps."""

ERASING_TRIES = 5
"""Tries before a request to forget is answered: our own readers take some milliseconds."""


RETENTION_SECONDS = 3600.0
DAY_SECONDS = 86400.0


@dataclass
class SessionKeeper:
    """Ends, finds and forgets sessions. `idle_seconds` without a main turn or feedback end an episode."""

    journal: AsyncJournal
    conversations: Conversations
    recorder: Recorder
    limit: SessionLimit
    idle_seconds: float

    async def end(self, session_id: str, reason: str, *, given: float | None = None) -> int | None:
        """End the session's open episode; its number, or `None` if none was open. An end that was `given` (Unix
        seconds) before the first turn of the open episode is about the one before.
        """
        if given is not None and await self.journal.begun_after(session_id, given):
            return None
        episode = await self.journal.end_episode(session_id, reason)
        self.limit.left(session_id)
        return episode

    async def keep_open(self, attempt: OpenAttempt) -> None:
        """Let silence not end an attempt of which nothing is recorded."""
        if attempt.last_seen < now() - FRESH_SECONDS:
            with contextlib.suppress(JournalError):
                await self.journal.keep_open(attempt.session_id)

    async def why_not_ended(self, session_id: str) -> str:
        """The reason why nothing was ended in a session."""
        row = await self.journal.session(session_id, turns=False)
        if row is None:
            return (
                f"There is no session {session_id!r}: nothing was recorded under this id, so there is nothing to end."
            )
        if not row.episodes:
            return f"Session {session_id!r} has no episode to end."
        last = row.episodes[-1]
        if last.ended is None:
            return f"Episode {last.episode} of session {session_id!r} began after that."
        return f"Episode {last.episode} of session {session_id!r} had already ended: {last.reason}."

    async def last_main_turn(self, session_id: str, before: float | None = None) -> TurnRef:
        """The last main turn answered in the session (`before` a time in Unix seconds). Raises `NotFound`."""
        turn = await self.journal.last_main_turn(session_id, before=before)
        if turn is None:
            raise NotFound(
                f"Session {session_id!r} has no answered main turn that feedback could be about. "
                "GET /rl/sessions lists the sessions.",
                code="session_not_found",
                param="session_id",
            )
        return turn

    async def forget(self, session_id: str) -> tuple[list[int], bool]:
        """Delete a session and its answers in progress. The versions that learned from it, and whether its text is
        `pending` in the journal's log, since another program reads it. Raises `NotFound`.
        """
        if await self.journal.session(session_id, turns=False) is None:
            raise NotFound(f"There is no session {session_id!r}.", code="session_not_found")
        self.recorder.forget(session_id)
        versions = await self.journal.forget(session_id)
        self.conversations.forget(session_id)
        self.limit.left(session_id)
        return versions, not await self._erased()

    async def forget_before(self, before: float, seconds: float = math.inf) -> tuple[Forgotten, int]:
        """Delete the episodes without a turn since a time (Unix seconds), one after another, oldest first, until none
        is left or some seconds have passed. What was deleted, and how many are left.
        """
        due = time.monotonic() + seconds
        old = await self.journal.old_episodes(before)
        done: list[OldEpisode] = []
        versions = set[int]()
        try:
            for one in old:
                if time.monotonic() >= due:
                    break
                done.append(one)
                versions.update(await self.journal.forget(one.session_id, one.episode, before))
        finally:  # at once: each time all that is in memory is gone through, while requests wait
            self.conversations.forget(*{one.session_id for one in done})
        forgotten = Forgotten.of(done, versions)
        forgotten.pending = not await self._erased()
        return forgotten, len(old) - len(done)

    async def _erased(self) -> bool:
        for _ in range(ERASING_TRIES):
            if await self.journal.finish_erasing():
                return True
            await asyncio.sleep(ERASING_SECONDS / 100)
        return False

    async def retain(self, days: float) -> None:
        """Forget what is older than some days, every hour, until cancelled; 0 keeps everything."""
        while days:
            try:
                forgotten, _ = await self.forget_before(now() - days * DAY_SECONDS)
                if forgotten.turns:
                    log.info("%d turns older than %g days were forgotten (keep_days)", forgotten.turns, days)
            except JournalError as error:
                log.warning("what is older than %g days was not forgotten: %s", days, error)
            await asyncio.sleep(RETENTION_SECONDS)

    async def erase(self) -> None:
        """Finish what readers of the journal kept from being erased, until cancelled."""
        while True:
            try:
                await self.journal.finish_erasing()
            except JournalError as error:
                log.warning("forgotten text is not erased yet: %s", error)
            await asyncio.sleep(ERASING_SECONDS)

    async def end_idle(self) -> int:
        """End the episodes of sessions that were silent for too long; how many."""
        idle = await self.journal.idle_sessions(now() - self.idle_seconds)
        for session_id in idle:
            await self.end(session_id, "idle")
        return len(idle)

    async def run(self) -> None:
        """End idle episodes, until cancelled."""
        pause = max(0.2, min(60.0, self.idle_seconds / 4))
        while True:
            await asyncio.sleep(pause)
            try:
                await self.end_idle()
            except JournalError as error:
                log.warning("idle episodes were not ended: %s", error)
