"""Mean and standard deviation of figures that come in parts."""

from __future__ import annotations

import math
from collections.abc import Sequence


class Moments:
    """Of no figures at all both are 0."""

    def __init__(self) -> None:
        self.count = 0
        self._values: list[float] = []

    def add(self, values: Sequence[float]) -> None:
        """Count `values` in."""
        self._values.extend(values)
        self.count += len(values)

    def take(self, other: Moments) -> None:
        """Count in what `other` has."""
        self.add(other._values)

    @property
    def mean(self) -> float:
        """Their mean."""
        return math.fsum(self._values) / self.count if self.count else 0.0

    @property
    def deviation(self) -> float:
        """Their standard deviation (of a whole population)."""
        mean = self.mean
        return math.sqrt(math.fsum((value - mean) ** 2 for value in self._values) / self.count) if self.count else 0.0
