"""Run simulations one after the other, or as cells in several processes, so that a long run can continue."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from bench.cells import code_digest
from bench.cells.cache import Cache, run_all
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


def spread(
    seeds: range,
    events: int,
    workers: int,
    folder: Path | None,
    show: Callable[[int, int, SeedsResult, float], None],
) -> list[SeedsResult]:
    """Run seeds in `workers` processes; results of this code that are in `folder` already are not made again. `show` is
    that of `run_all`.
    """
    code = code_digest.digest(_RUNS)
    starts = range(seeds.start, seeds.stop, _AT_ONCE)
    parts = [SomeSeeds(first=at, count=min(_AT_ONCE, seeds.stop - at), events=events, code=code) for at in starts]
    with tempfile.TemporaryDirectory() as unkept:
        return run_all(parts, Cache(folder or Path(unkept), SeedsResult), workers, run, show)


def run(part: SomeSeeds) -> SeedsResult:
    """Run the seeds of a part."""
    found = list(outcomes(range(part.first, part.first + part.count), part.events))
    return SeedsResult(seeds=len(found), events=sum(one.events for one in found), bad=[one for one in found if one.bad])
