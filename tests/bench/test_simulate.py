"""The simulator replays a seed exactly, finds nothing in the product in a few seeds, and finds a mutant."""

from __future__ import annotations

from pathlib import Path

import msgspec

from bench.cells import code_digest
from bench.cells.cache import Cache
from bench.mutants import applied
from bench.simulate.events import SimulationResult, simulate
from bench.simulate.seeds import SeedsResult, SomeSeeds, run, spread

EVENTS = 40


def outcome(folder: Path, seed: int) -> SimulationResult:
    folder.mkdir()
    return simulate(seed, folder, events=EVENTS)


def test_a_seed_gives_the_same_trace_again(tmp_path: Path) -> None:
    first, other, again = (outcome(tmp_path / name, seed) for name, seed in (("a", 1), ("b", 2), ("c", 1)))
    assert first.trace == again.trace != other.trace
    assert first.events == EVENTS
    assert not (first.bad or other.bad), first.violations + other.violations + first.no_progress + other.no_progress


def test_a_mutant_is_found(tmp_path: Path) -> None:
    with applied("no entry.done()"):
        assert any(outcome(tmp_path / str(seed), seed).bad for seed in range(10))


def test_a_run_continues_with_what_it_has_of_the_same_code(tmp_path: Path) -> None:
    part = SomeSeeds(first=0, count=2, events=EVENTS, code=code_digest.digest(("bench.simulate.seeds",)))
    found = run(part)
    assert (found.seeds, found.events, found.bad) == (2, 2 * EVENTS, [])
    Cache(tmp_path, SeedsResult).put(part, msgspec.structs.replace(found, events=7))
    shown: list[object] = []
    assert [one.events for one in spread(range(0, 2), EVENTS, 1, tmp_path, lambda *some: shown.append(some))] == [7]
    assert not shown, "nothing ran"
    others = [msgspec.structs.replace(part, **change) for change in ({"code": "x"}, {"count": 1}, {"events": 1})]
    assert not any(map(Cache(tmp_path, SeedsResult).get, others))
