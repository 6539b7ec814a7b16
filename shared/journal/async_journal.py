"""The journal for event loops: writes go to the writing thread and are awaited until they are durable, reads to two
reading threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

import msgspec

from openclaw_rl.shared.errors import DamagedRecord, JournalError
from openclaw_rl.shared.journal import attempts, forgetting, sessions, signals, turns
from openclaw_rl.shared.journal.journal import FORGET, Journal, Operation, Operations
from openclaw_rl.shared.journal.sqlite import Connection
from openclaw_rl.shared.journal.views import OpenAttempt
from openclaw_rl.shared.journal.writer import LINGER_SECONDS, GroupWriter
from openclaw_rl.shared.records import Kind, Sample, Turn

_P = ParamSpec("_P")
_T = TypeVar("_T")

log = logging.getLogger(__name__)

READERS = 2

_TURN = Operation(turns.find_turn)
_OPEN_ATTEMPT = Operation(attempts.open_attempt)
_SET_ASIDE = Operation(signals.set_aside_damaged, writes=True)


class Opening:
    """The episode of a request. `number` is known at once for a session that was seen a moment ago, else when it is
    `written`. `open` does that within any transaction.
    """

    def __init__(self, open_episode: Callable[[Connection], int], number: int | None = None) -> None:
        self.number = number
        self.written: asyncio.Future[Any] | None = None
        self._open = open_episode

    @classmethod
    def known(cls, number: int) -> Opening:
        """An episode that is open already."""
        return cls(lambda connection: number, number)

    def open(self, connection: Connection) -> int:
        """The number, opened here where that has not been done or has failed."""
        if self.number is None:
            self.number = self._open(connection)
        return self.number

    async def opened(self) -> int:
        """The number, once the episode is in the journal. Raises `JournalError`."""
        if self.written is not None:
            await asyncio.shield(self.written)
        assert self.number is not None
        return self.number


class _Start:
    """Decides once whether a write begins or is given up, whichever comes first, in two threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begins: bool | None = None

    def begin(self) -> bool:
        """Begin, unless it is given up; may be asked again."""
        return self._decide(begins=True)

    def give_up(self) -> bool:
        """Give up; False where it has begun."""
        return not self._decide(begins=False)

    def _decide(self, *, begins: bool) -> bool:
        with self._lock:
            if self._begins is None:
                self._begins = begins
            return self._begins


class AsyncJournal(Operations):
    """Every method of `Journal`, to be awaited; a write that was cancelled by its caller may still happen. `sync` is
    the same journal for threads.
    """

    def __init__(self, path: str | os.PathLike[str], *, linger: float = LINGER_SECONDS) -> None:
        """Open or create the journal at a path (blocks for some milliseconds). `linger`: seconds for which the writes
        that come with a request wait for others to share their transaction. Raises as `Journal` does.
        """
        self.sync = Journal(path)
        self._writer = GroupWriter(self.sync.database, linger)
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="journal-reader")

    async def close(self) -> None:
        """Finish every queued write, then close. Later calls raise JournalError."""
        await asyncio.get_running_loop().run_in_executor(None, self._shut)

    def _shut(self) -> None:
        self._writer.close()
        self._readers.shutdown()
        self.sync.close()

    async def run(self, operation: Operation[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Run an operation in the writing thread or a reading one. A turn that is found to be damaged is set aside, so
        that the next try does not meet it again.
        """
        try:
            result = await self._run(operation, *args, **kwargs)
        except DamagedRecord as error:
            log.error("%s", error)
            if error.row is not None:
                await self._run(_SET_ASIDE, error.row, str(error))
            raise
        if operation.line is not None:
            log.info("%s", operation.line(*args, **kwargs))
        return result

    async def turn(self, turn_id: str) -> Turn | None:
        """The turn as it was recorded; `None` where there is none, or it is damaged and set aside."""
        try:
            return await self.run(_TURN, turn_id)
        except DamagedRecord:
            return None

    async def _run(self, operation: Operation[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        if not operation.writes:
            call = functools.partial(self.sync.run, operation, *args, **kwargs)
            return await asyncio.get_running_loop().run_in_executor(self._readers, call)

        def write(connection: Connection) -> _T:
            return operation.function(connection, *args, **kwargs)

        return await self._writer.submit(write, linger=operation.lingers)

    async def record_turn(self, turn: Turn, opening: Opening | None = None, *, patience: float | None = None) -> bool:
        """See `turns.record_turn`; into the episode of `opening` where there is one, whose write may still be on its
        way, or have failed while the journal could not be written. JournalError where that cannot begin within
        `patience` seconds: then the turn is not recorded later either.
        """
        start = _Start()

        def record(connection: Connection) -> bool:
            if not start.begin():
                return False
            if opening is None:
                return turns.record_turn(connection, turn)
            return turns.record_turn(connection, msgspec.structs.replace(turn, episode=opening.open(connection)))

        written = self._writer.submit(record)
        if patience is not None and not (await asyncio.wait({written}, timeout=patience))[0] and start.give_up():
            written.add_done_callback(lambda written: written.cancelled() or written.exception())
            raise JournalError(f"journal {self.sync.path} could not be written within {patience:g} s")
        return await written

    def opening(self, session_id: str, policy: str, source: str, *, kind: Kind = "main") -> Opening:
        """Begin `open_episode`. Every request asks this before it is answered, and most need nothing written: those are
        looked up here, since handing the lookup to a thread costs many times as much.
        """

        def open_episode(connection: Connection) -> int:
            return sessions.open_episode(connection, session_id, policy, source, kind=kind)

        with contextlib.suppress(JournalError):  # the write waits for a lock, or fails as well and says so
            with self.sync.database.reading(waits=False) as reading:
                known = sessions.known_episode(reading, session_id, kind)
            if known is not None:
                return Opening(open_episode, known)
        opening = Opening(open_episode)
        opening.written = self._writer.submit(opening.open, linger=True)
        # A failure that `record_turn` has reported already is not reported again.
        opening.written.add_done_callback(lambda written: written.cancelled() or written.exception())
        return opening

    async def open_attempt(self, session_id: str) -> OpenAttempt | None:
        """See `attempts.open_attempt`; asked of every request that names its session, so looked up here like the
        episode.
        """
        # A thread waits for a lock, or says what is wrong.
        with contextlib.suppress(JournalError), self.sync.database.reading(waits=False) as reading:
            return attempts.open_attempt(reading, session_id)
        return await self.run(_OPEN_ATTEMPT, session_id)

    async def forget(self, session_id: str, episode: int | None = None, before: float | None = None) -> list[int]:
        """See `forgetting.forget`; `finish_erasing` is still to be called."""
        return await self.run(FORGET, session_id, episode, before)

    async def finish_erasing(self) -> bool:
        """See `Journal.finish_erasing`; nothing waits for it."""
        erasing = await self.get_control(forgetting.ERASING)
        if not erasing:
            return True
        emptied = await asyncio.get_running_loop().run_in_executor(self._readers, self.sync.database.empty_log)
        if emptied:
            await self.erased(erasing)
        return emptied

    async def ready_samples(self, limit: int, groups: Sequence[str] | None = None) -> list[Sample]:
        """See `Journal.ready_samples`."""
        samples, faulty = await self._ready(limit, groups)
        for row, reason in faulty:
            await self.set_aside_damaged(row, reason)
        return samples
