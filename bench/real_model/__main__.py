"""Measure the recipe on a real chat model, SmolLM2-135M-Instruct, with three simulated people.

    python -m bench.real_model [--json] [--arms …] [--people …] [--seeds 3] [--workers 2] [--published]

Each person has a wish that a program can check: no lists and no bold, at most two sentences, a question at the end. The
arms: `trained` with the defaults for a model of this size; `control` without training, asked again at each stop;
`placebo`, whose person complains by chance about something else, until 24. Held-out questions are asked after 0, 24 and
64 interactions, and what the model knew before. `--published` adds what the published recipes reach at what cost, for
one person and seed. Every finished cell is cached: an interrupted run continues. The file of `--save` has all cells: a
later run that saves there continues from them, on another machine too. `--missing` reports the finished cells without
running others.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from bench import program
from bench.cells.cache import Cache, run_all
from bench.real_model import report
from bench.real_model.cell import ARMS, PUBLISHED, STOPS, RealModelCell, RealModelResult
from bench.real_model.people import NAMES
from bench.real_model.run import run
from openclaw_rl.shared.errors import ConfigError

CACHE = Path(".cache/real_model")
COMMON: dict[str, Any] = {"judge": "rules", "guard": False}
"""Settings of every cell. The guard, which only rejects versions, would take a third of the time."""

CELLS = "cells"
"""The key of the cells in a saved result."""

LONGEST = {"placebo": STOPS[1]}
"""Interactions after which an arm ends early: the placebo at the stop that the goal is set for."""
ALLOCATOR = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 32), "MALLOC_ARENA_MAX": "1"}
"""Settings of glibc with which freed memory is used again: else the kernel fills new pages in every step."""


def main() -> int:
    for name, value in ALLOCATOR.items():
        os.environ.setdefault(name, value)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    options = program.parser(__doc__)
    options.add_argument("--arms", default=",".join(ARMS), help="default: %(default)s")
    options.add_argument("--people", default=",".join(NAMES), help="default: %(default)s")
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--interactions", type=int, default=STOPS[-1])
    options.add_argument("--published", action="store_true", help="also run the published recipes")
    options.add_argument("--missing", action="store_true", help="report finished cells only")
    options.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (default: one a core)")
    options.add_argument("--cache", type=Path, default=CACHE, help="folder of finished cells (default: %(default)s)")
    options.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="another setting of the trained arm"
    )
    return program.run(options, measure)


def measure(options: argparse.Namespace) -> None:
    """Run the missing cells and report all. Raises `ConfigError` for an unknown arm or person, and without results."""
    people, chosen = options.people.split(","), options.arms.split(",")
    for given, known in ((people, NAMES), (chosen, ARMS)):
        if set(given) - set(known):
            raise ConfigError(f"{', '.join(sorted(set(given) - set(known)))}: choose from {', '.join(known)}")
    own = dict(one.split("=", 1) for one in options.set)
    cells = [
        RealModelCell(
            arm=arm,
            person=person,
            seed=seed,
            interactions=min(options.interactions, LONGEST.get(arm, options.interactions)),
            settings=settings_of(arm, own),
        )
        for seed in range(1, options.seeds + 1)
        for person in people
        for arm in chosen
    ]
    if options.published:
        cells += [
            RealModelCell(
                arm=name, person=people[0], seed=1, interactions=options.interactions, settings=settings_of(name, {})
            )
            for name in PUBLISHED
        ]
    cache = Cache(options.cache, RealModelResult)
    for result in saved_cells(options.save) if options.save else ():
        if cache.get(result.cell) is None:
            cache.put(result.cell, result)
    if options.missing:
        results = [found for found in map(cache.get, cells) if found is not None]
    else:
        results = run_all(cells, cache, options.workers, partial(run, folder=options.cache), _show)
    if not results:
        raise ConfigError(f"no finished cell in {options.cache}: run without --missing")
    found, seeds = report.arms(results), len({result.cell.seed for result in results})
    doubts = report.warnings(found) + report.mixed_code(results)
    saved: dict[str, Any] = {
        "model": "SmolLM2-135M-Instruct",
        "seeds": seeds,
        "arms": found,
        "warnings": doubts,
        CELLS: msgspec.to_builtins(results),
    }
    title = f"SmolLM2-135M-Instruct, {seeds} seed(s), 95 % intervals, held-out questions"
    if options.save:
        picture = options.save.with_suffix(".png")
        report.draw(picture, results, title)
        saved["curve"] = picture.name
    program.report(options, title, report.COLUMNS, report.rows(found), saved)
    for line in doubts:
        program.log.print(f"warning: {line}", highlight=False)


def saved_cells(file: Path) -> list[RealModelResult]:
    """The cells of a saved result; none if the file is missing or older than this. Raises `ConfigError`."""
    try:
        found = json.loads(file.read_bytes())
        return msgspec.convert(found.get(CELLS, []), list[RealModelResult])
    except FileNotFoundError:
        return []
    except (ValueError, AttributeError) as error:
        raise ConfigError(f"{file} is no result of this benchmark: {error}; give another file to --save") from error


def settings_of(arm: str, own: dict[str, Any]) -> dict[str, Any]:
    """The service's settings of an arm; the defaults for the model's size apply to the rest."""
    if arm == "control":
        return COMMON | {"train": False}
    if arm in PUBLISHED:
        return COMMON | {"method": arm}
    return COMMON | own


def _show(done: int, total: int, result: RealModelResult, seconds: float) -> None:
    last, cell = result.points[-1], result.cell
    styles = " ".join(f"{point.style:.2f}" for point in result.points)
    program.log.print(
        f"{done}/{total} ({seconds / 60:.0f} min) {cell.arm} {cell.person} seed {cell.seed}: style {styles}, knowledge "
        f"{last.knowledge:.2f}, degenerate {last.degenerate:.2f} ({result.cpu_seconds:.0f} CPU-s)",
        highlight=False,
    )


if __name__ == "__main__":
    sys.exit(main())
