"""The simulator replays a seed exactly, finds nothing in the product in a few seeds, and finds a mutant."""

from __future__ import annotations

from pathlib import Path

import msgspec

from bench.mutants import applied
from bench.simulate.events import SimulationResult, simulate
from bench.simulate.seeds import spread

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
    (first,) = spread(range(0, 2), EVENTS, 1, tmp_path)
    assert (first.seeds, first.events, first.bad) == (2, 2 * EVENTS, [])
    (kept,) = tmp_path.rglob("*.json")
    kept.write_bytes(msgspec.json.encode(msgspec.structs.replace(first, events=7)))
    assert [found.events for found in spread(range(0, 2), EVENTS, 1, tmp_path)] == [7]
    assert [found.events for found in spread(range(0, 1), EVENTS, 1, tmp_path)] == [EVENTS]
