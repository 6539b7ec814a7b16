"""Run simulations one after the other, or in several processes."""

from __future__ import annotations

import dataclasses
import gc
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from bench.simulate.events import SimulationResult, simulate
from bench.simulate.world import prompter

MEMORY = Path("/dev/shm")
"""A RAM disk, where there is one."""
_AT_ONCE = 50
"""Seeds that a process is given at a time."""


def outcomes(seeds: Iterable[int], events: int) -> Iterator[SimulationResult]:
    """Run seeds one after the other, each in a folder of its own."""
    prompter()
    gc.collect()
    gc.freeze()
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None, prefix="simulate") as top:
        for seed in seeds:
            with tempfile.TemporaryDirectory(dir=top, prefix="seed") as folder:
                yield simulate(seed, Path(folder), events=events)


def spread(seeds: range, events: int, workers: int) -> Iterator[SimulationResult]:
    """Run seeds in several processes; the results come in the order of the seeds."""
    if workers <= 1:
        yield from outcomes(seeds, events)
        return
    parts = [seeds[start : start + _AT_ONCE] for start in range(0, len(seeds), _AT_ONCE)]
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for found in pool.map(_part, parts, [events] * len(parts)):
            yield from found


def _part(seeds: range, events: int) -> list[SimulationResult]:
    return [dataclasses.replace(one, trace=[]) for one in outcomes(seeds, events)]
