"""Estimate the core-hours of missing cells from the CPU time of finished ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

from bench.learning.cell import TOGETHER, Cell, Result

KINDS: tuple[Callable[[Cell], object], ...] = (
    lambda cell: (cell.arm, cell.persona, cell.last_only),
    lambda cell: (cell.settings.get("method"), cell.last_only, cell.preamble),
    lambda cell: cell.settings.get("train", True),
    lambda cell: None,
)
"""Kinds of cells that cost alike, the most alike first."""


def seconds(cell: Cell, finished: Sequence[Result]) -> float | None:
    """The CPU seconds of a cell, by the mean per interaction of finished ones of its kind; `None` without any."""
    for kind in KINDS:
        alike = [
            result.cpu_seconds / interactions_of(result.cell) for result in finished if kind(result.cell) == kind(cell)
        ]
        if alike:
            return fmean(alike) * interactions_of(cell)
    return None


def core_hours(cells: Sequence[Cell], finished: Sequence[Result]) -> float | None:
    """The core-hours of cells; `None` if nothing is finished."""
    found = [seconds(cell, finished) for cell in cells]
    return None if None in found else sum(one for one in found if one is not None) / 3600


def interactions_of(cell: Cell) -> int:
    """All interactions of a cell, those of all people together."""
    return cell.interactions * len(cell.persona.split(TOGETHER))
