"""An event loop with a virtual clock and a seeded order of callbacks, and simulated processes in it that can be killed.

Nothing waits: when no callback is ready the clock jumps to the next timer. A callback belongs to the process in whose
context it was made. A killed process never runs again, not even its `finally` blocks.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import heapq
import itertools
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

_BEGIN = 1_800_000_000.0
"""Unix time at which every simulation begins."""

MOST_STEPS = 100_000
"""Callbacks after which a simulation counts as running in circles."""


class RunsInCircles(Exception):
    """Callbacks follow one another and time does not pass."""


class SimulatedProcess:
    """A process by its name. `fuse`: callbacks that it has left once it has committed `commits_left` more times."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.databases: list[Any] = []
        self.commits_left: int | None = None
        self.fuse = 0
        self.killed: Callable[[], None] | None = None
        self.context = contextvars.copy_context()
        self.context.run(PROCESS.set, self)

    def committed(self) -> None:
        """Count a commit of this process."""
        if self.commits_left is not None:
            self.commits_left -= 1


PROCESS: contextvars.ContextVar[SimulatedProcess | None] = contextvars.ContextVar("process", default=None)


class _NumberedTask(asyncio.Task[Any]):
    """A task whose hash does not depend on its address: sets of tasks have the same order in every run."""

    def __init__(self, number: int, *args: Any, **kwargs: Any) -> None:
        self.number = number
        super().__init__(*args, **kwargs)

    def __hash__(self) -> int:
        return self.number


class VirtualLoop(asyncio.BaseEventLoop):
    """With `disorder` 0 callbacks run in the order of their coming, with 1 in a random one. More than `most_steps`
    callbacks are too many.
    """

    def __init__(self, seed: str, disorder: float, most_steps: int = MOST_STEPS) -> None:
        super().__init__()
        self._random = Random(f"{seed} order")
        self._disorder = disorder
        self._numbers = itertools.count()
        self._tasks: list[_NumberedTask] = []
        self._most_steps = most_steps
        self.clock = 1000.0
        self.skew = 0.0
        """Seconds that the wall clock has jumped."""
        self.steps = 0
        self.set_task_factory(self._make_task)
        self.set_exception_handler(lambda loop, context: None)

    def time(self) -> float:
        """Seconds of the virtual clock, which never jumps."""
        return self.clock

    def wall(self) -> float:
        """Unix time, which may jump."""
        return _BEGIN + self.clock + self.skew

    def run_in_executor(self, executor: Any, function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Run a function in a callback of its own instead of a thread."""
        future = self.create_future()
        self.call_soon(self._execute, future, function, args)
        return future

    def call_soon_threadsafe(self, callback: Callable[..., Any], *args: Any, context: Any = None) -> asyncio.Handle:  # type: ignore[override]
        """There are no threads."""
        return self.call_soon(callback, *args, context=context)

    def start(self, process: SimulatedProcess | None, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine as a part of a process."""
        if process is None:
            return self.create_task(coroutine)
        return self.create_task(coroutine, context=process.context.copy())

    def kill(self, process: SimulatedProcess) -> None:
        """End a process as `kill -9` does."""
        if process.alive:
            process.alive = False
            for database in process.databases:
                database.close()
            if process.killed is not None:
                contextvars.Context().run(process.killed)

    def abandon(self) -> None:
        """Let go of everything that still waits. Its `finally` blocks run now and may raise anything."""
        for task in self._tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            with contextlib.suppress(BaseException):
                task.get_coro().close()
        self._tasks.clear()
        self._ready.clear()  # type: ignore[attr-defined]
        self._scheduled.clear()  # type: ignore[attr-defined]

    def _make_task(self, loop: Any, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        task = _NumberedTask(next(self._numbers), coroutine, loop=loop, **options)
        if task.number % MOST_STEPS == MOST_STEPS - 1:
            self._tasks = [one for one in self._tasks if not one.done()]
        self._tasks.append(task)  # kept: what is let go of runs its `finally` blocks
        return task

    def _execute(self, future: asyncio.Future[Any], function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        try:
            result = function(*args)
        except BaseException as error:
            if not future.cancelled():
                future.set_exception(error)
        else:
            if not future.cancelled():
                future.set_result(result)

    def _run_once(self) -> None:
        ready, scheduled = self._ready, self._scheduled  # type: ignore[attr-defined]
        while scheduled and scheduled[0]._cancelled:
            heapq.heappop(scheduled)._scheduled = False
        if not ready and scheduled:
            self.clock = max(self.clock, scheduled[0]._when)
        while scheduled and scheduled[0]._when <= self.clock:
            timer = heapq.heappop(scheduled)
            timer._scheduled = False
            if not timer._cancelled:
                ready.append(timer)
        if not ready:
            raise RunsInCircles("nothing is left to run")
        if len(ready) > 1 and self._disorder and self._random.random() < self._disorder:
            ready.rotate(-self._random.randrange(len(ready)))
        handle = ready.popleft()
        if handle._cancelled:
            return
        process = handle._context.get(PROCESS)
        if process is not None:
            if not process.alive:
                return
            if process.commits_left is not None and process.commits_left <= 0:
                if process.fuse <= 0:
                    self.kill(process)
                    return
                process.fuse -= 1
        self.steps += 1
        if self.steps > self._most_steps:
            raise RunsInCircles(f"{self.steps} callbacks")
        handle._run()

    def _process_events(self, event_list: Any) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


@contextmanager
def collecting() -> Iterator[None]:
    """Collect garbage at the end of a block and not in it, where it would run code at other moments in every run."""
    hook = sys.unraisablehook
    sys.unraisablehook = lambda found: None  # killed processes are let go of in the middle of what they did
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.collect()
        sys.unraisablehook = hook


@contextmanager
def virtual_time(loop: VirtualLoop) -> Iterator[None]:
    """The clocks of module `time` are those of the loop."""
    before = {name: getattr(time, name) for name in ("time", "monotonic", "perf_counter")}
    try:
        time.time = loop.wall
        time.monotonic = time.perf_counter = loop.time
        yield
    finally:
        for name, original in before.items():
            setattr(time, name, original)
