"""Measures of the base are made once."""

from __future__ import annotations

from pathlib import Path

from bench.real_model.base import BaseMeasures


async def test_a_measure_of_the_base_is_made_once_for_all_arms(tmp_path: Path) -> None:
    made: list[str] = []

    async def measure() -> list[float]:
        made.append("measured")
        return [0.25, float(len(made))]

    assert await BaseMeasures(tmp_path).get(("style", "brief", 1, 0), measure) == [0.25, 1.0]
    assert await BaseMeasures(tmp_path).get(("style", "brief", 1, 0), measure) == [0.25, 1.0]
    assert await BaseMeasures(tmp_path).get(("style", "brief", 2, 0), measure) == [0.25, 2.0]
    assert await BaseMeasures(tmp_path).get(("style", "plain", 1, 0), measure) == [0.25, 3.0]
