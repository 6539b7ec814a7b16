"""The journal for event loops: writes go to the writing thread and are awaited until they are durable, reads to two
reading threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

import msgspec

from openclaw_rl.shared.errors import JournalError
from openclaw_rl.shared.journal.journal import Journal
from openclaw_rl.shared.journal.transfer import Recorded
from openclaw_rl.shared.journal.views import AuditFigures, LearningFigures, ProcessRow, Reaction, SessionRow, TurnRef
from openclaw_rl.shared.journal.writer import LINGER_SECONDS, GroupWriter
from openclaw_rl.shared.records import (
    Audit,
    Feedback,
    Judgement,
    Kind,
    NextState,
    Outcome,
    PolicyVersion,
    Quarantine,
    Sample,
    Turn,
    VersionState,
)

_P = ParamSpec("_P")
_T = TypeVar("_T")

READERS = 2


class Opening:
    """The episode of a request: `number` once it is known, which it is at once for a session that was seen a moment
    ago.
    """

    def __init__(self, number: int | None = None) -> None:
        self.number = number
        self._written: asyncio.Future[Any] | None = None

    async def opened(self) -> int:
        """The number, once the episode is in the journal. Raises `JournalError`."""
        if self._written is not None:
            await asyncio.shield(self._written)
        assert self.number is not None
        return self.number

    def _by(self, written: asyncio.Future[Any]) -> Opening:
        self._written = written
        written.add_done_callback(_seen)
        return self


class AsyncJournal:
    """Every method of `Journal`, to be awaited; a write that was cancelled by its caller may still happen. `sync` is
    the journal beneath.
    """

    def __init__(self, journal: Journal, *, linger: float = LINGER_SECONDS) -> None:
        self.sync = journal
        self._writer = GroupWriter(journal, linger)
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="journal-reader")

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, linger: float = LINGER_SECONDS) -> AsyncJournal:
        """Open or create the journal at a path (blocks for some milliseconds). `linger`: seconds for which the writes
        that come with a request wait for others to share their transaction. Raises as `Journal.open` does.
        """
        return cls(Journal.open(path), linger=linger)

    async def close(self) -> None:
        """Finish every queued write, then close. Later calls raise JournalError."""
        await asyncio.get_running_loop().run_in_executor(None, self._shut)

    def _shut(self) -> None:
        self._writer.close()
        self._readers.shutdown()
        self.sync.close()

    def _linger(self, method: Callable[[], _T]) -> asyncio.Future[_T]:
        return self._writer.submit(method, linger=True)

    async def _write(self, method: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        result: _T = await self._writer.submit(functools.partial(method, *args, **kwargs))
        return result

    async def _read(self, method: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        call = functools.partial(method, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._readers, call)

    async def record_turn(self, turn: Turn, opening: Opening | None = None) -> bool:
        """`Journal.record_turn`, into the episode of `opening` where there is one; its write may still be on its
        way.
        """
        if opening is None:
            return await self._write(self.sync.record_turn, turn)
        return await self._write(self._record_into, turn, opening)

    def _record_into(self, turn: Turn, opening: Opening) -> bool:
        if opening.number is None:
            raise JournalError(f"the episode of turn {turn.turn_id} could not be opened, so it was not recorded")
        if turn.episode != opening.number:
            turn = msgspec.structs.replace(turn, episode=opening.number)
        return self.sync.record_turn(turn)

    async def settle(self, next_state: NextState) -> bool:
        return await self._linger(functools.partial(self.sync.settle, next_state))

    async def add_feedback(self, feedback: Feedback) -> None:
        return await self._write(self.sync.add_feedback, feedback)

    async def add_outcome(self, outcome: Outcome) -> None:
        return await self._write(self.sync.add_outcome, outcome)

    def opening(self, session_id: str, policy: str, source: str, *, kind: Kind = "main") -> Opening:
        """Begin `open_episode`. Every request asks this before it is answered, and most need nothing written: they are
        told at once, since handing the lookup to a thread costs many times as much.
        """
        with contextlib.suppress(JournalError):  # told by the write, which then fails as well
            known = self.sync._known_episode(session_id, kind)
            if known is not None:
                return Opening(known)
        opening = Opening()

        def run() -> None:
            opening.number = self.sync.open_episode(session_id, policy, source, kind=kind)

        return opening._by(self._linger(run))

    async def open_episode(self, session_id: str, policy: str, source: str, *, kind: Kind = "main") -> int:
        return await self.opening(session_id, policy, source, kind=kind).opened()

    async def end_episode(self, session_id: str, reason: str) -> int | None:
        return await self._write(self.sync.end_episode, session_id, reason)

    async def count_traffic(self, kind: str, reason: str) -> None:
        return await self._write(self.sync.count_traffic, kind, reason)

    async def expect_outcome(self, session_id: str) -> int | None:
        return await self._write(self.sync.expect_outcome, session_id)

    async def add_judgement(self, judgement: Judgement) -> None:
        return await self._write(self.sync.add_judgement, judgement)

    async def add_sample(self, sample: Sample, *, correction: bool = False) -> None:
        return await self._write(self.sync.add_sample, sample, correction=correction)

    async def last_lesson(self, turn_id: str) -> Sample | None:
        return await self._read(self.sync.last_lesson, turn_id)

    async def add_quarantine(self, quarantine: Quarantine) -> None:
        return await self._write(self.sync.add_quarantine, quarantine)

    async def add_audit(self, audit: Audit) -> None:
        return await self._write(self.sync.add_audit, audit)

    async def pass_unaudited(self, turn_ids: Sequence[str]) -> None:
        return await self._write(self.sync.pass_unaudited, turn_ids)

    async def commit_version(self, version: PolicyVersion) -> None:
        return await self._write(self.sync.commit_version, version)

    async def set_version_state(self, number: int, state: VersionState, guard: Mapping[str, Any] | None = None) -> None:
        return await self._write(self.sync.set_version_state, number, state, guard)

    async def make_live(self, number: int) -> bool:
        return await self._write(self.sync.make_live, number)

    async def set_control(self, key: str, value: str) -> None:
        return await self._write(self.sync.set_control, key, value)

    async def heartbeat(self, process: str, pid: int, status: Mapping[str, Any]) -> None:
        return await self._write(self.sync.heartbeat, process, pid, status)

    async def forget(self, session_id: str) -> list[int]:
        return await self._write(self.sync.forget, session_id)

    async def turn(self, turn_id: str) -> Turn | None:
        return await self._read(self.sync.turn, turn_id)

    async def session(self, session_id: str) -> SessionRow | None:
        return await self._read(self.sync.session, session_id)

    async def main_turns(self, turn_id: str) -> tuple[int, bool]:
        return await self._read(self.sync.main_turns, turn_id)

    async def sessions(self, limit: int = 50, offset: int = 0) -> list[SessionRow]:
        return await self._read(self.sync.sessions, limit, offset)

    async def session_ids(self, since: float = 0.0) -> list[str]:
        return await self._read(self.sync.session_ids, since)

    async def recorded(self, since: float = 0.0) -> Recorded:
        return await self._read(self.sync.recorded, since)

    async def turn_ids(self, session_id: str) -> list[str]:
        return await self._read(self.sync.turn_ids, session_id)

    async def import_session(
        self, turns: Sequence[Turn], next_states: Sequence[NextState] = (), feedback: Sequence[Feedback] = ()
    ) -> bool:
        return await self._write(self.sync.import_session, turns, next_states, feedback)

    async def find_answers(self, keys: Sequence[bytes], session_id: str = "") -> dict[bytes, list[TurnRef]]:
        return await self._read(self.sync.find_answers, keys, session_id)

    async def find_requests(self, keys: Sequence[bytes], session_id: str = "") -> dict[bytes, list[TurnRef]]:
        return await self._read(self.sync.find_requests, keys, session_id)

    async def find_exchanges(self, keys: Sequence[bytes], session_id: str = "") -> dict[bytes, list[TurnRef]]:
        return await self._read(self.sync.find_exchanges, keys, session_id)

    async def begun_after(self, session_id: str, time: float) -> bool:
        return await self._read(self.sync.begun_after, session_id, time)

    async def turn_ref(self, turn_id: str) -> TurnRef | None:
        return await self._read(self.sync.turn_ref, turn_id)

    async def session_feedback(self, session_id: str, source: str) -> list[Feedback]:
        return await self._read(self.sync.session_feedback, session_id, source)

    async def last_main_turn(
        self, session_id: str, episode: int | None = None, before: float | None = None
    ) -> TurnRef | None:
        return await self._read(self.sync.last_main_turn, session_id, episode, before)

    async def idle_sessions(self, before: float) -> list[str]:
        return await self._read(self.sync.idle_sessions, before)

    async def active_sessions(self) -> list[str]:
        return await self._read(self.sync.active_sessions)

    async def explain(self, turn_id: str) -> dict[str, Any] | None:
        return await self._read(self.sync.explain, turn_id)

    async def unjudged(self, limit: int, *, offset: int = 0, told: bool = False) -> list[Turn]:
        return await self._read(functools.partial(self.sync.unjudged, offset=offset, told=told), limit)

    async def next_state(self, turn_id: str) -> NextState | None:
        return await self._read(self.sync.next_state, turn_id)

    async def feedback_for(self, turn_id: str) -> list[Feedback]:
        return await self._read(self.sync.feedback_for, turn_id)

    async def judgement(self, turn_id: str) -> Judgement | None:
        return await self._read(self.sync.judgement, turn_id)

    async def outcome(self, session_id: str) -> Outcome | None:
        return await self._read(self.sync.outcome, session_id)

    async def later_main_turns(self, turn_id: str, until: float = math.inf) -> int:
        return await self._read(self.sync.later_main_turns, turn_id, until)

    async def left_out(self, limit: int) -> list[list[str]]:
        return await self._read(self.sync.left_out, limit)

    async def ready_samples(self, limit: int) -> list[Sample]:
        return await self._read(self.sync.ready_samples, limit)

    async def ready_words(self, *, guesses: bool) -> int:
        return await self._read(self.sync.ready_words, guesses=guesses)

    async def ready_signal(self) -> bool:
        return await self._read(self.sync.ready_signal)

    async def ready_count(self) -> int:
        return await self._read(self.sync.ready_count)

    async def prompts_seen(self, limit: int, *, images: bool = False) -> list[Turn]:
        return await self._read(functools.partial(self.sync.prompts_seen, images=images), limit)

    async def recent_hints(self, limit: int) -> list[str]:
        return await self._read(self.sync.recent_hints, limit)

    async def reactions(self, turn_ids: Sequence[str], limit: int) -> tuple[list[Reaction], list[Reaction]]:
        return await self._read(self.sync.reactions, turn_ids, limit)

    async def hint_mentions(self, limit: int) -> list[tuple[int, str]]:
        return await self._read(self.sync.hint_mentions, limit)

    async def accepted_answers(self, limit: int) -> list[tuple[int, str]]:
        return await self._read(self.sync.accepted_answers, limit)

    async def unaudited(self, limit: int) -> list[tuple[str, int]]:
        return await self._read(self.sync.unaudited, limit)

    async def audit(self, turn_id: str) -> Audit | None:
        return await self._read(self.sync.audit, turn_id)

    async def aligned_count(self, version: int) -> int:
        return await self._read(self.sync.aligned_count, version)

    async def audit_figures(self) -> AuditFigures:
        return await self._read(self.sync.audit_figures)

    async def live_version(self) -> PolicyVersion | None:
        return await self._read(self.sync.live_version)

    async def version(self, number: int) -> PolicyVersion | None:
        return await self._read(self.sync.version, number)

    async def versions(self) -> list[PolicyVersion]:
        return await self._read(self.sync.versions)

    async def next_version_number(self) -> int:
        return await self._read(self.sync.next_version_number)

    async def learning_figures(self) -> LearningFigures:
        return await self._read(self.sync.learning_figures)

    async def get_control(self, key: str, default: str = "") -> str:
        return await self._read(self.sync.get_control, key, default)

    async def processes(self) -> dict[str, ProcessRow]:
        return await self._read(self.sync.processes)

    async def status(self) -> dict[str, Any]:
        return await self._read(self.sync.status)


def _seen(future: asyncio.Future[Any]) -> None:
    """Keep a failure from being reported as never retrieved: `Opening.opened` raises it to whoever waits."""
    if not future.cancelled():
        future.exception()
