"""Run simulations one after the other, or in several processes. Results are kept, so that a long run can continue."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import msgspec

from bench.cells import code_digest
from bench.cells.cache import Cache
from bench.simulate.events import SimulationResult, simulate
from bench.simulate.world import prompter

MEMORY = Path("/dev/shm")
"""A RAM disk, where there is one."""
_AT_ONCE = 50
"""Seeds that a process is given at a time."""
_RUNS = ("bench.simulate.seeds",)
"""The module from which the code of a simulation is found."""


class SomeSeeds(msgspec.Struct, frozen=True, kw_only=True):
    """Neighbouring seeds, which one process runs. `code` is the digest of what they run."""

    first: int
    count: int
    events: int
    code: str

    @property
    def key(self) -> str:
        """A name for the cache."""
        return f"{self.code}/{self.first}-{self.count}-{self.events}"


class SeedsResult(msgspec.Struct, frozen=True, kw_only=True):
    """Results without their traces, but for those that were `bad`: numbers of all, and the bad ones."""

    seeds: int
    events: int
    bad: list[SimulationResult]


def outcomes(seeds: Iterable[int], events: int) -> Iterator[SimulationResult]:
    """Run seeds one after the other, each in a folder of its own."""
    prompter()
    gc.collect()
    gc.freeze()
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None, prefix="simulate") as top:
        for seed in seeds:
            with tempfile.TemporaryDirectory(dir=top, prefix="seed") as folder:
                yield simulate(seed, Path(folder), events=events)


def spread(seeds: range, events: int, workers: int, folder: Path | None) -> Iterator[SeedsResult]:
    """Run seeds in `workers` processes; results of this code that are in `folder` already are not made again."""
    cache = Cache(folder, SeedsResult) if folder is not None else None
    code = code_digest.digest(_RUNS)
    starts = range(seeds.start, seeds.stop, _AT_ONCE)
    parts = [SomeSeeds(first=at, count=min(_AT_ONCE, seeds.stop - at), events=events, code=code) for at in starts]
    known = {part: found for part in parts if cache is not None and (found := cache.get(part)) is not None}
    missing = [part for part in parts if part not in known]
    yield from known.values()
    if workers <= 1:
        yield from _made(cache, missing, map(run, missing))
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield from _made(cache, missing, pool.map(run, missing))


def run(part: SomeSeeds) -> SeedsResult:
    """Run the seeds of a part."""
    found = list(outcomes(range(part.first, part.first + part.count), part.events))
    return SeedsResult(seeds=len(found), events=sum(one.events for one in found), bad=[one for one in found if one.bad])


def _made(
    cache: Cache[SeedsResult] | None, parts: Sequence[SomeSeeds], made: Iterable[SeedsResult]
) -> Iterator[SeedsResult]:
    for part, found in zip(parts, made, strict=True):
        if cache is not None:
            cache.put(part, found)
        yield found
