"""Sessions and their episodes: ended by request or by silence, looked up, forgotten."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from openclaw_rl.proxy.conversation.placement import Conversations
from openclaw_rl.proxy.conversation.recorder import Recorder
from openclaw_rl.proxy.conversation.session_limit import SessionLimit
from openclaw_rl.shared.errors import JournalError, NotFound
from openclaw_rl.shared.journal import AsyncJournal, TurnRef
from openclaw_rl.shared.records import now

log = logging.getLogger(__name__)


@dataclass
class SessionKeeper:
    """Ends, finds and forgets sessions. `idle_seconds` without a main turn or feedback end an episode: heartbeats and
    other side calls do not keep it open.
    """

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

    async def why_not_ended(self, session_id: str) -> str:
        """The reason why nothing was ended in a session."""
        row = await self.journal.session(session_id)
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
        """The last main turn answered in the session (by a time, in Unix seconds), of the last episode that has one.
        Raises `NotFound`.
        """
        turn = await self.journal.last_main_turn(session_id, before=before)
        if turn is None:
            raise NotFound(
                f"Session {session_id!r} has no answered main turn that feedback could be about. "
                "GET /rl/sessions lists the sessions.",
                code="session_not_found",
                param="session_id",
            )
        return turn

    async def forget(self, session_id: str) -> list[int]:
        """Delete a session everywhere, with its answers in progress; the versions that had learned from it. Raises
        `NotFound`.
        """
        if await self.journal.session(session_id) is None:
            raise NotFound(f"There is no session {session_id!r}.", code="session_not_found")
        self.recorder.forget(session_id)
        versions = await self.journal.forget(session_id)
        self.conversations.forget(session_id)
        self.limit.left(session_id)
        return versions

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
