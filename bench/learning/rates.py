"""The search for learning rates, the same for every method: for each person, by the result at the last point.

All rates run with one seed, and the best `SURVIVORS` of them with a second. Problems and seeds are not the grid's.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from bench.learning.cell import SPLIT_SEEDS, Cell, CurvePoint, Result
from bench.learning.plan import batch_of, method_under, search_settings

RATES = (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2)
SURVIVORS = 3
LAST = 256
"""The interactions of a run of the search: the last point of the grid."""

Worths = dict[str, dict[str, dict[float, list[float]]]]
"""What a rate was worth in each seed, by method, person and rate."""


def first_round(methods: Sequence[str], people: Sequence[str], **options: Any) -> list[Cell]:
    """A cell for each method, person and rate."""
    return [
        _cell(method, person, rate, 1, **options) for method in methods for person in people for rate in sorted(RATES)
    ]


def second_round(results: Sequence[Result], **options: Any) -> list[Cell]:
    """Cells with another seed for the best rates of each method and person whose first round is complete."""
    return [
        _cell(method, person, rate, 2, **options)
        for method, people in worths(results).items()
        for person, found in people.items()
        for rate in _survivors(found)
    ]


def worth(point: CurvePoint) -> float:
    """Style times accuracy: a product, so that neither can replace the other."""
    return point.style * point.accuracy


def worths(results: Sequence[Result]) -> Worths:
    """The worth of every rate."""
    found: Worths = {}
    for result in sorted(results, key=lambda one: (one.cell.seed, float(one.cell.settings["learning_rate"]))):
        cell = result.cell
        rates = found.setdefault(cell.arm, {}).setdefault(cell.persona, {})
        rates.setdefault(float(cell.settings["learning_rate"]), []).append(worth(result.curves[cell.persona][-1]))
    return found


def best(results: Sequence[Result]) -> dict[str, dict[str, float]]:
    """The best rate of each method and person, by the mean over seeds; those whose search is not complete are left
    out.
    """
    chosen: dict[str, dict[str, float]] = {}
    for method, people in worths(results).items():
        for person, found in people.items():
            twice = {rate: fmean(seeds) for rate, seeds in found.items() if len(seeds) > 1}
            if len(twice) >= SURVIVORS:
                chosen.setdefault(method, {})[person] = max(twice, key=twice.__getitem__)
    return chosen


def table(results: Sequence[Result]) -> dict[str, Any]:
    """The worth of each seed, by method, person and rate, for the JSON."""
    return {
        method: {
            person: {f"{rate:g}": [round(seed, 4) for seed in seeds] for rate, seeds in found.items()}
            for person, found in people.items()
        }
        for method, people in worths(results).items()
    }


def _survivors(found: dict[float, list[float]]) -> list[float]:
    if set(found) != set(RATES):
        return []
    return sorted(sorted(found, key=lambda rate: found[rate][0])[-SURVIVORS:])


def _cell(method: str, person: str, rate: float, seed: int, *, interactions: int = LAST, **options: Any) -> Cell:
    return Cell(
        arm=method,
        persona=person,
        seed=SPLIT_SEEDS["search"] + seed,
        interactions=interactions,
        lanes=batch_of(method_under(method)),
        settings=search_settings(method, rate),
        last_only=True,
        **options,
    ).with_code()
