"""A Prometheus histogram that is cheap enough for every token: a bisection and an addition, no lock.

The library's takes several locks, which costs several times the rest of a token. Only the event loop may observe.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector


class Histogram(Collector):
    """Counts values by upper bound (inclusive, ascending; what is larger counts in +Inf)."""

    def __init__(self, name: str, text: str, bounds: Sequence[float], *, registry: CollectorRegistry) -> None:
        self._name = name
        self._text = text
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0
        registry.register(self)

    def observe(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """The counts as Prometheus expects them: cumulative."""
        names = [*map(repr, map(float, self._bounds)), "+Inf"]
        family = HistogramMetricFamily(self._name, self._text)
        family.add_metric([], list(zip(names, accumulate(self._counts), strict=True)), self._sum)
        yield family
