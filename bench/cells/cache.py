"""Cache results on disk, one file per finished cell: a run can be interrupted, resumed and shared by processes."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import active_children, current_process, get_context
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from openclaw_rl.shared.files import replace_file
from openclaw_rl.shared.process import PARENT_VARIABLE, die_with_parent


class Keyed(Protocol):
    """A cell. Equal cells have the same `key`, the name of their result's file."""

    @property
    def key(self) -> str: ...


C = TypeVar("C", bound=Keyed)
R = TypeVar("R")


class Cache(Generic[R]):
    """The results in a folder, each of type `kind`."""

    def __init__(self, folder: Path, kind: type[R]) -> None:
        self.folder = folder
        self._kind = kind

    def get(self, cell: Keyed) -> R | None:
        """The cached result of a cell; `None` if missing."""
        with contextlib.suppress(FileNotFoundError):
            return msgspec.json.decode(self._path(cell).read_bytes(), type=self._kind)
        return None

    def put(self, cell: Keyed, result: R) -> None:
        """Write a result atomically."""
        path = self._path(cell)
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, msgspec.json.encode(result))

    def _path(self, cell: Keyed) -> Path:
        return self.folder / f"{cell.key}.json"


def run_all(
    cells: Sequence[C],
    cache: Cache[R],
    workers: int,
    run: Callable[[C], Coroutine[Any, Any, R] | R],
    show: Callable[[int, int, R, float], None],
    *,
    until: float = math.inf,
) -> list[R]:
    """Return the results of all cells; missing ones run in `workers` processes by `run`, a function of a module, and
    each calls `show(done, total, result, seconds)` at its end. A failed cell is retried once before its error is
    raised. At the time `until` (of `time.monotonic`) no further cell begins, and the results are those that there are.
    """
    missing = list({cell.key: cell for cell in cells if cache.get(cell) is None}.values())
    begun = time.monotonic()
    if missing and begun < until:
        _run_missing(missing, cache, max(1, workers), run, show, begun, until)
    found = [cache.get(cell) for cell in cells]
    return [result for result in found if result is not None]


def _run_missing(
    missing: Sequence[C],
    cache: Cache[R],
    workers: int,
    run: Callable[[C], Coroutine[Any, Any, R] | R],
    show: Callable[[int, int, R, float], None],
    begun: float,
    until: float,
) -> None:
    waiting = deque((cell, 1) for cell in missing)
    running: dict[Future[R], tuple[C, int]] = {}
    done = 0
    with _pool(workers) as pool:
        while True:
            while waiting and len(running) < workers and time.monotonic() < until:
                cell, attempt = waiting.popleft()
                running[pool.submit(_run, run, cell)] = cell, attempt
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                cell, attempt = running.pop(future)
                try:
                    result = future.result()
                except Exception as error:
                    if attempt > 1:
                        raise
                    print(f"{cell.key} failed and is retried: {error}", file=sys.stderr, flush=True)
                    waiting.appendleft((cell, attempt + 1))
                    continue
                cache.put(cell, result)
                done += 1
                show(done, len(missing), result, time.monotonic() - begun)


@contextlib.contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Worker processes, which are ended with their cells if the block fails or is interrupted."""
    with ProcessPoolExecutor(
        workers, mp_context=get_context("spawn"), initializer=_begin, initargs=(os.getpid(),)
    ) as pool:
        try:
            yield pool
        except BaseException:
            for child in active_children():
                child.terminate()
            raise


def stay_on_a_core() -> None:
    """Keep a worker process from disturbing the others: a step takes all cores that its process may use."""
    number = current_process().name.rpartition("-")[2]
    if number.isdigit() and hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(os.getppid()))
        os.sched_setaffinity(0, {cores[int(number) % len(cores)]})


def _begin(parent: int) -> None:
    """Set up a worker: it ends with its parent, has a core of its own, and logs only errors."""
    os.environ[PARENT_VARIABLE] = str(parent)
    die_with_parent()
    del os.environ[PARENT_VARIABLE]
    stay_on_a_core()
    import logging
    import warnings

    import transformers

    warnings.filterwarnings("ignore", category=FutureWarning)
    transformers.utils.logging.disable_progress_bar()
    logging.basicConfig(level="ERROR")


def _run(run: Callable[[C], Coroutine[Any, Any, R] | R], cell: C) -> R:
    found = run(cell)
    return asyncio.run(found) if isinstance(found, Coroutine) else found
