"""Compare how well each method learns on the embedded policy.

    python -m bench.learning [--json] [--save FILE] [--hours H] [--part …] [--seeds 5] [--workers 2] [--quick]

The same simulated users hold the same conversations with every arm; held-out tasks are measured along the way. The
parts, in this order: `shipped` (a control without training, `rehearse` as it is shipped, with the guard, with
irrelevant hints), `ablation` (`rehearse` without each of its parts), `beyond` (few reactions, missed and wrong
feedback, changes of mind, long prompts, three people on one service), `rates` (`rehearse` at other learning rates),
`search` (of the learning rate, the same for every method and person, on other problems and seeds), `compared` (all
methods at their rates, and the placebo), `defects` (known defects of other systems).

Every finished cell is kept in a folder for the code that it ran, which can be committed: an interrupted run continues,
on another machine too, and cells of another state of the code are never read. `--hours H` begins no cell after H hours
and reports what there is; `--hours 0` only reports. `--save` also writes `ablation.json` and `defects.json` next to its
file. `--quick` runs one seed of every method at fixed rates to 64 interactions.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from bench import program
from bench.cells import code_digest
from bench.cells.cache import Cache, run_all
from bench.learning import costs, goals, plan, rates, report
from bench.learning.cell import TOGETHER, Cell, Result
from bench.learning.run import run
from openclaw_rl.evaluation import provenance
from openclaw_rl.shared.errors import ConfigError

CACHE = Path("bench/results/learning")
QUICK: dict[str, Any] = {"seeds": 1, "interactions": 64, "problems": 60, "glances": 20}
QUICK_PARTS = ("shipped", "compared")
QUICK_RATES = {name: dict.fromkeys(plan.PERSONAS, 4e-3) for name in plan.SEARCHED}
"""Learning rates of `--quick`, which does not search."""
APART = ("ablation", "defects")
"""Parts with a file of their own."""
PICTURES = {"beyond": "-beyond"}
"""Endings of the pictures of parts that have one of their own."""
LEFT_OUT = (*PICTURES, "rates")
"""Parts that the first picture leaves out."""


def main() -> int:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    options = program.parser(__doc__)
    options.add_argument("--quick", action="store_true", help="one seed, 64 interactions, fixed learning rates")
    options.add_argument("--part", default=",".join(plan.PARTS), help="default: %(default)s")
    options.add_argument("--arms", default="", help="arms of these parts (default: all)")
    options.add_argument("--personas", default=",".join(plan.PERSONAS), help="default: %(default)s")
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--interactions", type=int, default=256)
    options.add_argument("--hours", type=float, default=math.inf, help="begin no cell after so many hours")
    options.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (default: one a core)")
    options.add_argument("--cache", type=Path, default=CACHE, help="folder of finished cells (default: %(default)s)")
    options.add_argument(
        "--rate", action="append", default=[], metavar="METHOD=RATE", help="learning rate without search"
    )
    return program.run(options, measure)


def measure(options: argparse.Namespace) -> None:
    """Run the missing cells of the chosen parts, and report all finished ones."""
    bench = _Bench(options)
    bench.check()
    bench.show_left("at the start")
    bench.run()
    bench.show_left("at the end")
    bench.report()


class _Bench:
    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._parts = QUICK_PARTS if options.quick else tuple(options.part.split(","))
        self._people = options.personas.split(",")
        self._arms = [name for name in options.arms.split(",") if name]
        for given, known in (
            (self._parts, plan.PARTS),
            (self._people, plan.PERSONAS),
            (self._arms, plan.ARMS),
        ):
            if unknown := set(given) - set(known):
                raise ConfigError(f"{', '.join(sorted(unknown))}: choose from {', '.join(known)}")
        self._cache: Cache[Result] = Cache(options.cache, Result)
        self._until = time.monotonic() + 3600 * options.hours
        self._sizes = QUICK if options.quick else {"seeds": options.seeds, "interactions": options.interactions}
        self._given: dict[str, dict[str, float]] = dict(QUICK_RATES) if options.quick else {}
        for one in options.rate:
            name, _, rate = one.partition("=")
            self._given[name] = dict.fromkeys(plan.PERSONAS, float(rate))

    def check(self) -> None:
        """Raises `ConfigError` before results are saved that no commit names."""
        codes = {cell.modules for cell in self._cells(self._rates())}
        changed = sorted({name for modules in codes for name in code_digest.uncommitted(modules)})
        if not changed:
            return
        found = f"no commit has the code of these cells: {', '.join(changed[:5])} differ"
        if self._options.save:
            raise ConfigError(f"{found}; commit first, so that the result can name it")
        program.log.print(f"warning: {found}", highlight=False)

    def run(self) -> None:
        """Run what is missing, the parts in their order."""
        for part in self._chosen:
            if part == "search":
                self._run(self._first_round(), part)
                self._run(rates.second_round(self._finished(self._first_round()), **self._search_sizes), part)
            else:
                self._run(self._grid(part, self._rates()), part)

    @property
    def _chosen(self) -> list[str]:
        return [part for part in plan.PARTS if part in self._parts]

    @property
    def _searched(self) -> list[str]:
        """The methods whose rates the chosen arms need, in the order of the plan."""
        wanted = {plan.ARMS[name].searched for part in self._chosen for name in self._names(part)} - {""}
        return [name for name in plan.SEARCHED if (name in wanted or not wanted) and name not in self._given]

    @property
    def _search_sizes(self) -> dict[str, Any]:
        return {"interactions": self._sizes["interactions"]}

    def _names(self, part: str) -> list[str]:
        return [name for name in plan.PARTS[part] if not self._arms or name in self._arms]

    def _first_round(self) -> list[Cell]:
        return rates.first_round(self._searched, self._people, **self._search_sizes)

    def _search(self) -> list[Result]:
        """The finished cells of the search."""
        first = self._finished(self._first_round())
        return [*first, *self._finished(rates.second_round(first, **self._search_sizes))]

    def _rates(self) -> dict[str, dict[str, float]]:
        return {**rates.best(self._search()), **self._given}

    def _grid(self, part: str, chosen: plan.Rates) -> list[Cell]:
        return plan.grid(self._names(part), self._people, rates=chosen, **self._sizes)

    def _cells(self, chosen: plan.Rates) -> list[Cell]:
        """All cells of the chosen parts, as far as they are known."""
        grid = [cell for part in self._chosen for cell in self._grid(part, chosen)]
        if "search" not in self._chosen:
            return grid
        first = self._first_round()
        return [*grid, *first, *rates.second_round(self._finished(first), **self._search_sizes)]

    def _finished(self, cells: Sequence[Cell]) -> list[Result]:
        found = ((cell, self._cache.get(cell)) for cell in cells)
        return [msgspec.structs.replace(result, cell=cell) for cell, result in found if result is not None]

    def _run(self, cells: Sequence[Cell], part: str) -> None:
        run_all(cells, self._cache, self._options.workers, run, _reporter(part), until=self._until)

    def show_left(self, when: str) -> None:
        """Print the number of missing cells and the core-hours that they take, by finished ones."""
        # Cells at rates that are not chosen yet cost about as much as at any other.
        guessed = {name: dict.fromkeys(plan.PERSONAS, rates.RATES[0]) for name in plan.SEARCHED}
        cells = list({cell.key: cell for cell in self._cells({**guessed, **self._rates()})}.values())
        finished = self._finished(cells)
        missing = [cell for cell in cells if self._cache.get(cell) is None]
        if "search" in self._chosen:
            first = self._first_round()
            chosen = len(rates.second_round(self._finished(first), **self._search_sizes))
            pairs = first[:: len(rates.RATES)] * rates.SURVIVORS
            missing += pairs[chosen:]  # in place of the second round's cells that are not chosen yet
        hours = costs.core_hours(missing, finished)
        costs_text = "unknown before the first cell" if hours is None else f"about {hours:.1f} core-hours"
        program.log.print(
            f"{when}: {len(finished)} cells are finished, {len(missing)} are missing: {costs_text}", highlight=False
        )

    def report(self) -> None:
        """Print and save the results of the chosen parts. Raises `ConfigError` if there are none."""
        chosen = self._rates()
        results = {part: self._finished(self._grid(part, chosen)) for part in self._chosen}
        together = [one for part, found in results.items() if part not in APART for one in found]
        documents = {"learning": together, **{part: results[part] for part in APART if part in results}}
        documents = {name: found for name, found in documents.items() if found}
        if not documents:
            raise ConfigError(f"no finished cell of this code in {self._options.cache}")
        main = next(iter(documents))
        for name, found in reversed(documents.items()):
            path = self._options.save and self._options.save.with_name(
                self._options.save.name if name == main else f"{name}.json"
            )
            result = self._result(found, chosen if name != "ablation" else {})
            if name == "learning":
                result["search"] = rates.table(self._search())
                result["worst_of_several"] = report.worst_of_several(found, 24)
                result["goals"] = [list(row) for row in goals.rows(result["arms"])]
            if path:
                self._draw(path, name, results, found, result)
            title = f"{name}: {result['seeds']} seed(s), 95 % intervals, held-out work"
            rows = report.rows(result["arms"])
            if name == main:
                program.report(self._options, title, report.COLUMNS, rows, result)
            elif path:
                provenance.save(path, provenance.typed("python -m bench.learning"), result)

    def _result(self, found: Sequence[Result], chosen: plan.Rates) -> dict[str, Any]:
        return {
            "commit": provenance.commit(),
            "code": sorted({result.cell.code for result in found}),
            "seeds": len({result.cell.seed for result in found}),
            "arms": report.arms(found),
            "learning_rates": {name: dict(people) for name, people in chosen.items()},
            "points": report.points(found),
            "core_hours": round(sum(result.cpu_seconds for result in found) / 3600, 2),
        }

    def _draw(
        self,
        path: Path,
        name: str,
        results: dict[str, list[Result]],
        found: Sequence[Result],
        result: dict[str, Any],
    ) -> None:
        """Draw the pictures of a document next to its file."""
        apart = PICTURES if name == "learning" else {}
        left_out = {arm for part in LEFT_OUT for arm in plan.PARTS[part]}
        first = [one for one in found if one.cell.arm not in left_out]
        groups = {"curve": ("", first), **{part: (end, results.get(part, [])) for part, end in apart.items()}}
        for key, (end, shown) in groups.items():
            if shown:
                picture = path.with_name(f"{path.stem}{end}.png")
                report.draw(picture, shown, f"{result['seeds']} seed(s), 95 % intervals, held-out work")
                result[key if key == "curve" else f"curve_{key}"] = picture.name


def _reporter(stage: str) -> Any:
    def show(done: int, total: int, result: Result, seconds: float) -> None:
        cell = result.cell
        for person in cell.persona.split(TOGETHER):
            last = result.curves[person][-1]
            program.log.print(
                f"{stage} {done}/{total} ({seconds / 60:.0f} min) {cell.arm} {person} seed {cell.seed} "
                f"{cell.settings.get('learning_rate', '')}: style {last.style:.2f}, accuracy {last.accuracy:.2f} after "
                f"{last.interactions}, {result.versions_made} versions ({result.cpu_seconds:.0f} CPU-s)",
                highlight=False,
            )

    return show


if __name__ == "__main__":
    sys.exit(main())
