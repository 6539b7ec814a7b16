"""Choose learning rates: the same candidates for every method, compared by style and accuracy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from bench.learning.cell import PROBED, Result


def worth(result: Result) -> float:
    """Mean of style times accuracy over the full probes; a product, so that neither can replace the other."""
    values = [point.style * point.accuracy for point in result.points if point.interactions in PROBED]
    return math.fsum(values) / len(values)


def chosen(results: Sequence[Result]) -> tuple[dict[str, float], dict[str, Any]]:
    """Return the best rate of each method, and the mean worth over seeds by method and rate."""
    table: dict[str, dict[float, list[float]]] = {}
    for result in results:
        method, rate = str(result.cell.settings["method"]), float(result.cell.settings["learning_rate"])
        table.setdefault(method, {}).setdefault(rate, []).append(worth(result))
    means = {
        method: {rate: math.fsum(values) / len(values) for rate, values in sorted(rates.items())}
        for method, rates in table.items()
    }
    best = {method: max(rates, key=lambda rate, rates=rates: rates[rate]) for method, rates in means.items()}
    rounded = {
        method: {f"{rate:g}": round(value, 4) for rate, value in rates.items()} for method, rates in means.items()
    }
    return best, rounded
