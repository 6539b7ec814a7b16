"""Group commit: one thread writes what many callers ask for, as many operations as are waiting in one transaction and
one fsync.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from openclaw_rl.shared.errors import JournalError
from openclaw_rl.shared.journal.sqlite import Connection, Database

_T = TypeVar("_T")

GROUP_LIMIT = 256
"""Operations a transaction; more would hold up other processes that want to write."""

LINGER_SECONDS = 0.02
"""Seconds that an operation whose caller need not be answered at once waits for others to share their transaction."""


class _Operation(NamedTuple):
    run: Callable[[Connection], Any]
    future: asyncio.Future[Any]


class GroupWriter:
    """Owns the writing thread. `submit` may be called from any event loop, and each future ends when its write is
    durable or failed.
    """

    def __init__(self, database: Database, linger: float = LINGER_SECONDS) -> None:
        self._database = database
        self._linger = linger
        self._queue: queue.SimpleQueue[list[_Operation] | None] = queue.SimpleQueue()
        self._gathered: list[_Operation] = []
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="journal-writer", daemon=True)
        self._thread.start()

    def submit(self, run: Callable[[Connection], _T], *, linger: bool = False) -> asyncio.Future[_T]:
        """Queue a writing operation; the future gets its result, its own exception, or JournalError if its transaction
        failed. Operations are run in the order of their calls; one that may `linger` waits for the next that may not,
        but no longer than the `linger` of this writer.
        """
        loop = asyncio.get_running_loop()
        operation = _Operation(run, loop.create_future())
        with self._lock:
            if self._closed:
                raise JournalError(f"journal {self._database.path} is closed")
            self._gathered.append(operation)
            if not linger:
                self._pass_on()
            elif len(self._gathered) == 1:
                loop.call_later(self._linger, self._hurry)
        return operation.future

    def close(self) -> None:
        """Write what is queued, then end the thread. Blocks; idempotent."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._pass_on()
                self._queue.put(None)
        self._thread.join()

    def _hurry(self) -> None:
        with self._lock:
            self._pass_on()

    def _pass_on(self) -> None:
        if self._gathered:
            self._queue.put(self._gathered)
            self._gathered = []

    def _run(self) -> None:
        ended = False
        while not ended:
            operations: list[_Operation] = []
            while not ended and len(operations) < GROUP_LIMIT:
                gathered = self._queue.get()
                # `close` puts the end mark last, so nothing can stand behind it.
                ended = gathered is None
                operations += gathered or ()
                if self._queue.empty():
                    break
            if operations:
                self._write(operations)

    def _write(self, operations: list[_Operation]) -> None:
        try:
            results = self._database.run_group([operation.run for operation in operations])
        except Exception as error:
            results = [error] * len(operations)
        for operation, result in zip(operations, results, strict=True):
            with contextlib.suppress(RuntimeError):  # the loop is closed: no caller waits, and the write is done
                operation.future.get_loop().call_soon_threadsafe(_resolve, operation.future, result)


def _resolve(future: asyncio.Future[Any], result: Any) -> None:
    if future.done():
        return
    if isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)
