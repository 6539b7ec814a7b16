"""How well each method learns, side by side on the embedded policy.

    python -m bench.learning [--json] [--quick] [--ablate] [--arms …] [--personas …] [--seeds 5] [--workers 2]

The same simulated people hold the same conversations with every arm: a control that does not train, a placebo (shuffled
rewards), irrelevant hints, the published methods and `rehearse`. Held-out work is measured along the way. Learning
rates are chosen first, by the same small search for each method on other problems and seeds. Every cell (arm, persona,
seed) is kept in the cache as it ends: an interrupted run goes on where it was, and `--workers` share it. `--quick` is a
look in about ten minutes; `--ablate` shows what known defects of other systems cost.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path
from typing import Any

from bench import service
from bench.learning import ablation, plan, rates, report
from bench.learning.cache import Cache, run_all
from bench.learning.cell import Result
from openclaw_rl.shared.errors import OpenClawRLError

CACHE = Path(".cache/learning")
QUICK: dict[str, Any] = {"seeds": 1, "interactions": 64, "problems": 60, "glances": 20}
QUICK_RATES = dict.fromkeys(plan.METHODS, 4e-3) | {"rehearse": 2e-3}
"""What `--quick` takes instead of a search; the whole run prints what it chose."""


def main() -> int:
    """The program; its exit code."""
    options = _parser()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        _run(options.parse_args())
    except OpenClawRLError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(
        prog="python -m bench.learning", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--json", action="store_true", help="print one JSON line on stdout, everything else on stderr")
    options.add_argument(
        "--save", type=Path, metavar="FILE", help="also write the result there, and its picture beside"
    )
    options.add_argument("--quick", action="store_true", help="one seed, 64 interactions, fixed learning rates")
    options.add_argument("--ablate", action="store_true", help="the defects instead of the grid")
    options.add_argument("--arms", default=",".join((*plan.ARMS, *plan.BESIDE)), help="default: %(default)s")
    options.add_argument("--personas", default=",".join(plan.PERSONAS), help="default: %(default)s")
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--interactions", type=int, default=256)
    options.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (default: one a core)")
    options.add_argument("--cache", type=Path, default=CACHE, help="folder of finished cells (default: %(default)s)")
    options.add_argument("--rate", action="append", default=[], metavar="METHOD=RATE", help="spare the search for one")
    return options


def _run(options: argparse.Namespace) -> None:
    cache = Cache(options.cache)
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
        found = run_all(plan.search(needed), cache, options.workers, _reporter("search"))
        best, searched = rates.chosen(found)
        chosen = best | given
        service.log.print(f"learning rates: {chosen}")
    if options.ablate:
        cells = ablation.cells(rate=chosen["combined"], **sizes)
    else:
        cells = plan.grid(arms, personas, rates=chosen, **sizes)
    results = run_all(cells, cache, options.workers, _reporter("grid"))
    every = report.arms(results)
    result: dict[str, Any] = {
        "seeds": sizes["seeds"],
        "arms": {arm: entry for arm, entry in every.items() if arm not in plan.BESIDE},
    }
    for name, beside in (("noise", plan.NOISE), ("explained", plan.EXPLAINED)):
        found = {arm: entry for arm, entry in every.items() if arm in beside}
        if found:
            result[name] = found
    result["learning_rates"] = chosen
    result["search"] = searched
    title = f"{sizes['seeds']} seed(s), 95 % intervals, held-out work"
    if options.save:
        picture = options.save.with_suffix(".png")
        report.draw(picture, results, title)
        result["curve"] = picture.name
    service.report(options, title, report.COLUMNS, report.rows(every), result)


def _reporter(what: str) -> Any:
    def show(done: int, total: int, result: Result, seconds: float) -> None:
        last = result.points[-1]
        service.log.print(
            f"{what} {done}/{total} ({seconds / 60:.0f} min) {result.cell.arm} {result.cell.persona} seed "
            f"{result.cell.seed} {result.cell.settings.get('learning_rate', '')}: style {last.style:.2f}, accuracy "
            f"{last.accuracy:.2f} after {last.interactions} ({result.cpu_seconds:.0f} CPU-s)",
            highlight=False,
        )

    return show


if __name__ == "__main__":
    sys.exit(main())
