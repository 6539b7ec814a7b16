"""The cases that find the eight mutants of `bench.mutants`."""

from __future__ import annotations

import shutil
from pathlib import Path

from bench.faults.cases import run_case
from bench.faults.points import POINTS, FaultCase
from bench.mutants import applied
from openclaw_rl.shared.rendering.prompter import Prompter

MOST_CASES = 120
"""Cases that are tried for a mutant."""

_FIRST = {
    "commit before save": ("mkdir", "file"),
    "no parent fsync": ("make live", "load"),
    "no entry.done()": ("next state",),
    "judgement before sample": ("sample",),
}
"""Points that are tried first, to be done sooner."""


def caught_by(name: str, template: Path, base: Path, prompter: Prompter) -> str:
    """The case that finds a mutant, with what it finds; "" if none does."""
    cases: list[FaultCase | None] = [None]
    for point in sorted(POINTS, key=lambda one: one.name not in _FIRST.get(name, ())):
        cases += [FaultCase(point.name, kind, number) for kind in point.kinds for number in (1, 2)]
    folder = base / "mutant"
    with applied(name):
        for case in cases[:MOST_CASES]:
            result = run_case(case, template, folder, prompter)
            shutil.rmtree(folder, ignore_errors=True)
            if result.failures():
                return f"{case or 'a day without faults'}: {result.failures()[0]}"
    return ""
