"""Cache results on disk, one file per finished cell: a run can be interrupted, resumed and shared by processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
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
        self.folder.mkdir(parents=True, exist_ok=True)
        replace_file(self._path(cell), msgspec.json.encode(result))

    def _path(self, cell: Keyed) -> Path:
        return self.folder / f"{cell.key}.json"


def run_all(
    cells: Sequence[C],
    cache: Cache[R],
    workers: int,
    run: Callable[[C], Coroutine[Any, Any, R]],
    show: Callable[[int, int, R, float], None],
) -> list[R]:
    """Return the results of all cells; missing ones run in `workers` processes by `run`, a function of a module, and
    each calls `show(done, total, result, seconds)` at its end. A failed cell is retried once before its error is
    raised.
    """
    missing = [cell for cell in cells if cache.get(cell) is None]
    begun = time.monotonic()
    with ProcessPoolExecutor(
        max(1, workers), mp_context=get_context("spawn"), initializer=_begin, initargs=(os.getpid(),)
    ) as pool:
        tries = {pool.submit(_run, run, cell): (cell, 1) for cell in missing}
        done = 0
        while tries:
            future = next(as_completed(tries))
            cell, attempt = tries.pop(future)
            try:
                result = future.result()
            except Exception as error:
                if attempt > 1:
                    pool.shutdown(cancel_futures=True)
                    raise
                print(f"{cell.key} failed and is retried: {error}", file=sys.stderr, flush=True)
                tries[pool.submit(_run, run, cell)] = (cell, attempt + 1)
                continue
            cache.put(cell, result)
            done += 1
            show(done, len(missing), result, time.monotonic() - begun)
    found = [cache.get(cell) for cell in cells]
    return [result for result in found if result is not None]


def _begin(parent: int) -> None:
    """Set up a worker: it ends with its parent, and logs only errors."""
    os.environ[PARENT_VARIABLE] = str(parent)
    die_with_parent()
    del os.environ[PARENT_VARIABLE]
    import logging
    import warnings

    import transformers

    warnings.filterwarnings("ignore", category=FutureWarning)
    transformers.utils.logging.disable_progress_bar()
    logging.basicConfig(level="ERROR")


def _run(run: Callable[[C], Coroutine[Any, Any, R]], cell: C) -> R:
    return asyncio.run(run(cell))
