"""Means with 95 % intervals over few seeds (Student's t)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

# Two-sided 97.5 % quantiles of Student's t for 1 to 30 degrees of freedom.
_T_QUANTILES = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131),
    *(2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
_NORMAL_QUANTILE = 1.959964


def t_quantile(degrees: int) -> float:
    """The 97.5 % quantile of Student's t; beyond 30 degrees of freedom by Cornish and Fisher's first two terms (error <
    1e-3).
    """
    if degrees < 1:
        raise ValueError(f"Student's t needs one or more degrees of freedom, got {degrees}")
    if degrees <= len(_T_QUANTILES):
        return _T_QUANTILES[degrees - 1]
    z = _NORMAL_QUANTILE
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)


@dataclass(frozen=True)
class Interval:
    """A mean and the half-width of its 95 % interval; the half-width of a single value is unknown (`None`)."""

    mean: float
    half_width: float | None

    def __str__(self) -> str:
        return f"{self.mean:.2f}" if self.half_width is None else f"{self.mean:.2f} ± {self.half_width:.2f}"


def interval(values: Sequence[float]) -> Interval:
    """Mean and 95 % interval of independent values, one a seed. Raises `ValueError` when there are none."""
    if not values:
        raise ValueError("no values to take a mean of")
    mean = math.fsum(values) / len(values)
    if len(values) == 1:
        return Interval(mean, None)
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return Interval(mean, t_quantile(len(values) - 1) * math.sqrt(variance / len(values)))


def spread(values: Sequence[float]) -> list[float | None]:
    """Mean and half-width of the 95 % interval over seeds (`None` for one), rounded."""
    found = interval(values)
    return [round(found.mean, 4), None if found.half_width is None else round(found.half_width, 4)]
