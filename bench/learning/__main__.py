"""Compare how well each method learns on the embedded policy.

    python -m bench.learning [--json] [--quick] [--ablate] [--arms …] [--personas …] [--seeds 5] [--workers 2]

The same simulated users hold the same conversations with every arm: a control without training, a placebo (shuffled
rewards), irrelevant hints, the published methods and `rehearse`. Held-out tasks are measured along the way. Learning
rates are chosen first, by the same small search for each method on other problems and seeds. Every finished cell (arm,
persona, seed) is cached: an interrupted run continues, and `--workers` share the cache. `--quick` takes about ten
minutes; `--ablate` measures the cost of known defects of other systems.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from bench import program
from bench.learning import ablation, plan, report
from bench.learning.cache import Cache, run_all
from bench.learning.cell import Result
from bench.learning.run import run

CACHE = Path(".cache/learning")
QUICK: dict[str, Any] = {"seeds": 1, "interactions": 64, "problems": 60, "glances": 20}
QUICK_RATES = dict.fromkeys(plan.METHODS, 4e-3) | {"rehearse": 2e-3}
"""Learning rates of `--quick`, which does not search."""


def main() -> int:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    options = program.parser(__doc__)
    options.add_argument("--quick", action="store_true", help="one seed, 64 interactions, fixed learning rates")
    options.add_argument("--ablate", action="store_true", help="run the defects instead of the grid")
    options.add_argument("--arms", default=",".join((*plan.ARMS, *plan.STUDENT_ONLY)), help="default: %(default)s")
    options.add_argument("--personas", default=",".join(plan.PERSONAS), help="default: %(default)s")
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--interactions", type=int, default=256)
    options.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (default: one a core)")
    options.add_argument("--cache", type=Path, default=CACHE, help="folder of finished cells (default: %(default)s)")
    options.add_argument(
        "--rate", action="append", default=[], metavar="METHOD=RATE", help="learning rate without search"
    )
    return program.run(options, measure)


def measure(options: argparse.Namespace) -> None:
    """Search the learning rates, run the missing cells, and report all of them."""
    cache = Cache(options.cache, Result)
    arms, personas = options.arms.split(","), options.personas.split(",")
    given = {method: float(rate) for method, _, rate in (one.partition("=") for one in options.rate)}
    sizes: dict[str, Any] = {"seeds": options.seeds, "interactions": options.interactions}
    searched: dict[str, Any] = {}
    if options.quick:
        sizes = QUICK
        chosen = QUICK_RATES | given
    else:
        needed = sorted({plan.method_of(arm) for arm in arms if arm != "control"} - given.keys())
        needed = ["combined"] if options.ablate and "combined" not in given else needed
        best, searched = plan.best_rates(run_all(plan.search(needed), cache, options.workers, run, _reporter("search")))
        chosen = best | given
        program.log.print(f"learning rates: {chosen}")
    if options.ablate:
        cells = ablation.cells(rate=chosen["combined"], **sizes)
    else:
        cells = plan.grid(arms, personas, rates=chosen, **sizes)
    results = run_all(cells, cache, options.workers, run, _reporter("grid"))
    every = report.arms(results)
    result: dict[str, Any] = {
        "seeds": sizes["seeds"],
        "arms": {arm: entry for arm, entry in every.items() if arm not in plan.STUDENT_ONLY},
    }
    for name, group in (("noise", plan.NOISE), ("explained", plan.EXPLAINED)):
        found = {arm: entry for arm, entry in every.items() if arm in group}
        if found:
            result[name] = found
    result["learning_rates"] = chosen
    result["search"] = searched
    title = f"{sizes['seeds']} seed(s), 95 % intervals, held-out work"
    if options.save:
        picture = options.save.with_suffix(".png")
        report.draw(picture, results, title)
        result["curve"] = picture.name
    program.report(options, title, report.COLUMNS, report.rows(every), result)


def _reporter(stage: str) -> Any:
    def show(done: int, total: int, result: Result, seconds: float) -> None:
        last = result.points[-1]
        program.log.print(
            f"{stage} {done}/{total} ({seconds / 60:.0f} min) {result.cell.arm} {result.cell.persona} seed "
            f"{result.cell.seed} {result.cell.settings.get('learning_rate', '')}: style {last.style:.2f}, accuracy "
            f"{last.accuracy:.2f} after {last.interactions} ({result.cpu_seconds:.0f} CPU-s)",
            highlight=False,
        )

    return show


if __name__ == "__main__":
    sys.exit(main())
