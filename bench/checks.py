"""Limits that a measurement must keep, for programs whose exit code says whether it did."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from bench.program import log


class Threshold(NamedTuple):
    """A measured `value`, in the JSON as `{name, value, limit, passed}`. It must be at most `limit`, and a number."""

    name: str
    value: float
    limit: float

    @property
    def passed(self) -> bool:
        """True if the limit is kept."""
        return math.isfinite(self.value) and self.value <= self.limit


def verdict(checks: Sequence[Threshold]) -> int:
    """Print each check; returns the exit code, 1 if one failed."""
    for check in checks:
        log.print(f"{'pass' if check.passed else 'FAIL'}: {check.name}: {check.value:.4g}, at most {check.limit:g}")
    return int(not all(check.passed for check in checks))


def as_json(checks: Sequence[Threshold]) -> list[dict[str, object]]:
    """The checks for a result."""
    return [{**check._asdict(), "passed": check.passed} for check in checks]
