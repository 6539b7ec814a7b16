"""Limits of measurements, and the exit code that they give."""

from __future__ import annotations

import math

import pytest

from bench.checks import Threshold, as_json, verdict


@pytest.mark.parametrize(("value", "passed"), [(0.5, True), (1.0, True), (1.1, False), (math.nan, False)])
def test_a_value_above_its_limit_or_none_at_all_fails(value: float, passed: bool) -> None:
    check = Threshold("distance", value, 1.0)
    assert check.passed is passed
    assert verdict([Threshold("another", 0, 0), check]) == (0 if passed else 1)
    assert as_json([check])[0]["passed"] is passed


def test_no_check_passes() -> None:
    assert verdict([]) == 0
