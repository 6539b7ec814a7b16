"""Mean and deviation of figures that come in parts."""

from __future__ import annotations

import pytest

from openclaw_rl.shared.objective.moments import Moments


def test_parts_count_as_the_whole() -> None:
    parts = Moments()
    parts.add([1.0, 2.0])
    parts.add([6.0])
    assert (parts.count, parts.mean) == (3, 3.0)
    assert parts.deviation == pytest.approx((14 / 3) ** 0.5)


def test_of_nothing_both_are_zero() -> None:
    nothing = Moments()
    nothing.add([])
    assert (nothing.count, nothing.mean, nothing.deviation) == (0, 0.0, 0.0)
