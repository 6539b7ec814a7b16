"""Cache results on disk, one file per finished cell: a run can be interrupted, resumed and shared by processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

import msgspec

from bench.learning.cell import Cell, Result
from openclaw_rl.shared.files import replace_file
from openclaw_rl.shared.process import PARENT_VARIABLE, die_with_parent


class Cache:
    """The results in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, cell: Cell) -> Result | None:
        """The cached result of a cell; `None` if missing."""
        with contextlib.suppress(FileNotFoundError):
            return msgspec.json.decode(self._path(cell).read_bytes(), type=Result)
        return None

    def put(self, result: Result) -> None:
        """Write a result atomically."""
        self.folder.mkdir(parents=True, exist_ok=True)
        replace_file(self._path(result.cell), msgspec.json.encode(result))

    def _path(self, cell: Cell) -> Path:
        return self.folder / f"{cell.key}.json"


def run_all(
    cells: Sequence[Cell], cache: Cache, workers: int, show: Callable[[int, int, Result, float], None]
) -> list[Result]:
    """Return the results of all cells; missing ones run in `workers` processes, and each calls
    `show(done, total, result, seconds)` at its end. A failed cell is retried once before its error is raised.
    """
    missing = [cell for cell in cells if cache.get(cell) is None]
    begun = time.monotonic()
    with ProcessPoolExecutor(
        max(1, workers), mp_context=get_context("spawn"), initializer=_begin, initargs=(os.getpid(),)
    ) as pool:
        tries = {pool.submit(_run, cell): (cell, 1) for cell in missing}
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
                tries[pool.submit(_run, cell)] = (cell, attempt + 1)
                continue
            cache.put(result)
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


def _run(cell: Cell) -> Result:
    from bench.learning.run import run

    return asyncio.run(run(cell))
