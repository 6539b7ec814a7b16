"""Let the shipped policy work on the built-in environments, and measure what it learns.

    python -m bench.environments [--json] [--save FILE] [--seeds 5] [--hours H] [--workers 2] [--only sums,trained]

For each environment and seed, at the settings of `openclaw-rl env train`: `trained` (with step rewards by the rule
judge), `control` (without training), `outcome_only` (without step rewards) and `placebo` (the outcomes of each group
permuted). Held-out tasks and word problems are measured before and after.

Every finished cell is kept in a folder for the code that it ran: an interrupted run continues, and cells of another
state of the code are never read. `--hours H` begins no cell after H hours and reports what there is; `--hours 0` only
reports.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from pathlib import Path

from bench import program
from bench.cells import code_digest
from bench.cells.cache import Cache, run_all
from bench.environments import plan, report
from bench.environments.cell import RUNS, EnvironmentResult
from bench.environments.run import run
from openclaw_rl.shared.errors import ConfigError

CACHE = Path("bench/results/environments")


def main() -> int:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    options = program.parser(__doc__)
    options.add_argument("--only", default="", help="environments and arms (default: all)")
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--episodes", type=int, default=plan.EPISODES, help="attempts (default: %(default)s)")
    options.add_argument("--hours", type=float, default=math.inf, help="begin no cell after so many hours")
    options.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (default: one a core)")
    options.add_argument("--cache", type=Path, default=CACHE, help="folder of finished cells (default: %(default)s)")
    return program.run(options, measure)


def measure(options: argparse.Namespace) -> None:
    """Run the missing cells, and report all finished ones. Raises `ConfigError` for unknown names, for code that no
    commit has where the result is saved, and without results.
    """
    environments, arms = chosen(options.only)
    cells = plan.grid(environments, arms, options.seeds, episodes=options.episodes)
    if changed := code_digest.uncommitted(RUNS):
        found = f"no commit has the code of these cells: {', '.join(changed[:5])} differ"
        if options.save:
            raise ConfigError(f"{found}; commit first, so that the result can name it")
        program.log.print(f"warning: {found}", highlight=False)
    cache = Cache(options.cache, EnvironmentResult)
    until = time.monotonic() + 3600 * options.hours
    results = run_all(cells, cache, options.workers, run, _show, until=until)
    if not results:
        raise ConfigError(f"no finished cell of this code in {options.cache}")
    found_all = report.entries(results)
    left = len(cells) - len(results)
    title = f"held-out tasks, 95 % intervals; {len(results)} cells{f', {left} are missing' if left else ''}"
    program.report(options, title, report.COLUMNS, report.rows(found_all), found_all)
    for row in report.goals(found_all):
        program.log.print(": ".join(row), highlight=False)


def chosen(only: str) -> tuple[list[str], list[str]]:
    """The environments and the arms that `only` names, separated by commas; all of the kind that it names none of.
    Raises `ConfigError`.
    """
    words = [word for word in only.split(",") if word]
    if unknown := [word for word in words if word not in (*plan.ENVIRONMENTS, *plan.ARMS)]:
        raise ConfigError(f"{', '.join(unknown)}: choose from {', '.join((*plan.ENVIRONMENTS, *plan.ARMS))}")
    environments = [name for name in plan.ENVIRONMENTS if name in words] or list(plan.ENVIRONMENTS)
    arms = [name for name in plan.ARMS if name in words] or list(plan.ARMS)
    return environments, arms


def _show(done: int, total: int, result: EnvironmentResult, seconds: float) -> None:
    cell, before, after = result.cell, result.before, result.after
    program.log.print(
        f"{done}/{total} ({seconds / 60:.0f} min) {cell.environment} {cell.arm} seed {cell.seed}: pass rate "
        f"{before.rate:.2f} → {after.rate:.2f}, word problems {before.accuracy:.2f} → {after.accuracy:.2f}, "
        f"{sum(result.versions.values())} versions, {result.trained} turns trained, {result.seconds:.0f} s "
        f"({result.cpu_seconds:.0f} CPU-s)",
        highlight=False,
    )


if __name__ == "__main__":
    sys.exit(main())
