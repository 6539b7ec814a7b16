"""Let every kind of fault happen at every named point of a turn and a step, and flip the bytes of a data folder.

    python -m bench.faults [--point NAME] [--case POINT:KIND:N] [--most 6] [--flips 2000] [--mutants] [--json]

Each case is a small day of the service with one fault, in a process of its own on a real journal and data folder, with
a scripted engine and trainer. Then faults stop: there must be progress, in that process if it still runs and after a
new start, and a checker that shares no code with the service reads what is left. `--mutants` puts eight known errors
into the service, one at a time, each of which the cases must find.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.faults.cases import CaseResult, make_template, run_case, run_together, warm_up
from bench.faults.flips import flip_all
from bench.faults.mutants import caught_by
from bench.faults.points import BY_NAME, POINTS, FaultCase, FaultPoint, parse_case
from bench.mutants import MUTANTS
from bench.program import log, parser, report, run
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.rendering.prompter import Prompter
from openclaw_rl.shared.settings.settings import EMBEDDED_POLICY

RAM_DISK = Path("/dev/shm")


def cases_of(points: Sequence[FaultPoint], calls: dict[str, int], most: int, seed: int) -> list[FaultCase]:
    """Every kind of fault at every call of these points; of more than `most` calls the first, the last and some
    between. Raises `ConfigError` for a point that the day without faults does not reach.
    """
    if gone := [point.name for point in points if not calls.get(point.name)]:
        raise ConfigError(f"the day without faults does not reach: {', '.join(gone)}")
    cases = []
    for point in points:
        count = calls[point.name]
        numbers = list(range(1, count + 1))
        if most and count > most:
            draw = random.Random(f"{seed} {point.name}")
            numbers = sorted({1, count, *draw.sample(numbers[1:-1], max(0, most - 2))})
        cases += [FaultCase(point.name, kind, number) for kind in point.kinds for number in numbers]
    return cases


def measure(options: argparse.Namespace) -> int:
    """Run the cases, the flips and the mutants; returns 1 if anything is wrong."""
    logging.basicConfig(level=logging.CRITICAL if not options.verbose else logging.INFO)
    prompter = Prompter(EMBEDDED_POLICY)
    warm_up()
    folder = tempfile.mkdtemp(prefix="faults-", dir=options.folder or (RAM_DISK if RAM_DISK.is_dir() else None))
    base = Path(folder)
    template = base / "template"
    make_template(template, prompter)
    if options.case:
        chosen, points = [parse_case(options.case)], [BY_NAME[options.case.split(":")[0]]]
    else:
        points = [BY_NAME[options.point]] if options.point else list(POINTS)
        calls = dict(run_case(None, template, base / "quiet", prompter).calls)
        chosen = cases_of(points, calls, options.most, options.seed)
    results = list(_shown(run_together(chosen, template, base, prompter, options.jobs), len(chosen)))
    result = summary(points, results) | {"most": options.most}
    if not options.case and not options.point:
        result |= flip_all(base / "flips", prompter, options.flips, options.seed)
        result["served_damaged"] += result.get("flips_served", 0)
    if options.mutants:
        found = {name: caught_by(name, template, base, prompter) for name in MUTANTS}
        for name, how in found.items():
            log.print(f"mutant {name!r}: {how or 'not found'}")
        result["mutants"] = {name: bool(how) for name, how in found.items()}
    rows = [[name, str(value)] for name, value in result.items() if not isinstance(value, list)]
    rows += [[one, ""] for one in result["failures"]]
    report(options, "Faults", ["", "found"], rows, result)
    wrong = result["failures"] or result.get("served_damaged") or result.get("flips_unnoticed")
    if wrong:
        log.print(f"the folders of cases that failed are in {base}")
    else:
        shutil.rmtree(base, ignore_errors=True)
    return int(bool(wrong) or not all(result.get("mutants", {}).values()))


def summary(points: Sequence[FaultPoint], results: Sequence[CaseResult]) -> dict[str, Any]:
    """The figures of the cases."""
    happened = [one for one in results if one.happened]
    count: Counter[str] = Counter()
    for one in happened:
        count["lost"] += any(one.findings.get(kind) for kind in ("acknowledged", "lost", "lineage", "journal"))
        count["twice"] += bool(one.findings.get("twice"))
        count["served_damaged"] += bool(one.findings.get("files"))
        count["stuck"] += bool(one.stuck)
    failures = [f"{one.case}: {failure}" for one in results for failure in one.failures()]
    figures = {name: count[name] for name in ("lost", "twice", "stuck", "served_damaged")}
    return {"points": len(points), "cases": len(happened), **figures, "failures": failures}


def _shown(results: Iterator[CaseResult], count: int) -> Iterator[CaseResult]:
    for number, one in enumerate(results, 1):
        for failure in one.failures():
            log.print(f"{failure}\n  replay: python -m bench.faults --case {one.case!r}")
        if number % 50 == 0:
            log.print(f"{number} of {count} cases")
        yield one


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--point", choices=list(BY_NAME), help="only the cases of this point")
    options.add_argument("--case", metavar="POINT:KIND:N", help="only this case")
    options.add_argument("--most", type=int, default=6, help="calls of a point that each kind is tried at; 0: all")
    options.add_argument("--flips", type=int, default=2000, help="bytes to flip in files larger than 4 kB; 0: none")
    options.add_argument("--mutants", action="store_true", help="also see that the eight known errors are found")
    options.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 1)), help="cases at the same time")
    options.add_argument(
        "--folder", type=Path, help="where the data folders are (default: a RAM disk, if there is one)"
    )
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--verbose", action="store_true", help="show the logs of the loops")
    return run(options, measure)


if __name__ == "__main__":
    sys.exit(main())
