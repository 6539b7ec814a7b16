from __future__ import annotations

import pytest

from openclaw_rl.evaluation.statistics import Interval, interval, t_quantile


def test_interval_of_three_seeds_by_hand() -> None:
    # Standard deviation 0.1, so the half-width is 4.303 * 0.1 / sqrt(3).
    result = interval([0.8, 0.9, 1.0])
    assert result.mean == pytest.approx(0.9)
    assert result.half_width == pytest.approx(4.303 * 0.1 / 3**0.5)
    assert str(result) == "0.90 ± 0.25"


def test_one_value_has_no_interval_and_none_is_an_error() -> None:
    assert interval([0.5]) == Interval(0.5, None)
    assert str(interval([0.5])) == "0.50"
    with pytest.raises(ValueError, match="no values"):
        interval([])


@pytest.mark.parametrize(
    ("degrees", "tabulated"), [(1, 12.706), (4, 2.776), (30, 2.042), (40, 2.021), (60, 2.000), (120, 1.980)]
)
def test_quantiles_agree_with_the_tables(degrees: int, tabulated: float) -> None:
    assert t_quantile(degrees) == pytest.approx(tabulated, abs=1e-3)
