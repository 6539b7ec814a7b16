"""Run the whole service in one process on a virtual clock, under seeded faults, and check it against its promises.

    python -m bench.simulate --seeds 10000 --workers 2 --cache FOLDER --json
    python -m bench.simulate --seed 17        one seed, with its trace: the same at every run
    python -m bench.simulate --mutants        and the seeds that each of eight mutants takes until it is found

Proxy, judge, learner, versions and journal are the product's; engine and trainer follow a script. Threads are
callbacks, time is virtual, files are on a RAM disk where there is one. A seed gives settings, order of callbacks,
events and faults (`bench.simulate.events.FAULTS`). Then the faults stop, and within 60 virtual seconds no turn may wait
for a judge, a version must come of new reactions, and the engine must serve the journal's live version.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

from bench.mutants import MUTANTS, applied
from bench.program import log, parser, report, run
from bench.simulate.events import SimulationResult
from bench.simulate.seeds import SeedsResult, outcomes, spread

COLUMNS = ("seeds", "events", "violations", "no_progress", "first_bad_seed")
_HASHES = "PYTHONHASHSEED"
MOST_FOR_A_MUTANT = 200
"""Seeds in which a mutant must be found."""


def found_after(mutant: str, options: argparse.Namespace) -> int | None:
    """The number of seeds until a mutant is found; `None` if it is not."""
    with applied(mutant):
        for number, outcome in enumerate(outcomes(range(MOST_FOR_A_MUTANT), options.events), 1):
            if outcome.bad:
                log.print(f"{mutant}: {(outcome.violations + outcome.no_progress)[0]}")
                return number
    log.print(f"{mutant}: not found in {MOST_FOR_A_MUTANT} seeds")
    return None


def measure(options: argparse.Namespace) -> int:
    """Run the seeds; returns 1 if one was bad, or a mutant was not found."""
    if options.seed is not None:
        (outcome,) = outcomes([options.seed], options.events)
        log.print("\n".join(outcome.trace), markup=False, highlight=False)
        _describe(outcome)
        log.print(f"trace {outcome.digest}")
        return int(outcome.bad)
    began = time.perf_counter()
    result: dict[str, Any] = dict.fromkeys(COLUMNS, 0) | {"first_bad_seed": None}
    seeds = range(options.first, options.first + options.seeds)
    parts = spread(seeds, options.events, options.workers, options.cache, _show)
    result |= {"seeds": sum(part.seeds for part in parts), "events": sum(part.events for part in parts)}
    bad = [outcome for part in parts for outcome in part.bad]
    for outcome in bad:
        _describe(outcome)
    result["violations"] = sum(bool(outcome.violations) for outcome in bad)
    result["no_progress"] = sum(bool(outcome.no_progress) for outcome in bad)
    result["first_bad_seed"] = min((outcome.seed for outcome in bad), default=None)
    if options.mutants:
        result |= {"mutants": {name: found_after(name, options) for name in MUTANTS}}
    seconds = time.perf_counter() - began
    rows = [[str(result[name]) for name in COLUMNS]]
    rows += [["mutant", name, "", "", str(seeds or "not found")] for name, seeds in result.get("mutants", {}).items()]
    report(options, f"{seconds:.0f} s in all", COLUMNS, rows, result)
    missed = None in result.get("mutants", {}).values()
    return int(missed or result["first_bad_seed"] is not None)


def _show(done: int, total: int, part: SeedsResult, seconds: float) -> None:
    """Say how far the run is, and the bad seeds as they come."""
    bad = f": bad {', '.join(str(one.seed) for one in part.bad)}" if part.bad else ""
    log.print(f"{done}/{total} ({seconds / 60:.0f} min) {part.seeds} seeds{bad}", highlight=False)


def _describe(outcome: SimulationResult) -> None:
    """Say what was wrong with a seed."""
    for text in outcome.violations:
        log.print(f"seed {outcome.seed}: {text}", markup=False)
    for text in outcome.no_progress:
        log.print(f"seed {outcome.seed}: no progress: {text}", markup=False)


def main() -> int:
    if os.environ.get(_HASHES) != "0":  # else sets of strings have another order in every run
        os.environ[_HASHES] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "bench.simulate", *sys.argv[1:]])
    options = parser(__doc__)
    options.add_argument("--seeds", type=int, default=1000, help="number of simulations")
    options.add_argument("--first", type=int, default=0, help="the first seed")
    options.add_argument("--seed", type=int, help="run this one alone and print its trace")
    options.add_argument("--workers", type=int, default=1, help="processes that run seeds side by side")
    options.add_argument("--cache", type=Path, help="folder of what is done; a run of this code continues")
    options.add_argument("--events", type=int, default=200, help="events and faults of a simulation")
    options.add_argument(
        "--mutants", action="store_true", help="then put each mutant into the product, and look for it"
    )
    return run(options, measure)


if __name__ == "__main__":
    sys.exit(main())
