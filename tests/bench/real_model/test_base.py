"""Measures of the base are made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.real_model.base import BaseMeasures
from bench.real_model.cell import RealModelCell

CELL = RealModelCell(arm="control", person="brief", seed=1, settings={"judge": "rules", "train": False})
MEASURED = ("style", "brief", 0)


class Measure:
    def __init__(self) -> None:
        self.made = 0

    async def __call__(self) -> list[float]:
        self.made += 1
        return [0.25, self.made]


async def test_a_measure_of_the_base_is_made_once_for_all_arms(tmp_path: Path) -> None:
    measure = Measure()
    trained = RealModelCell(
        arm="trained", person="brief", seed=1, interactions=24, settings={"judge": "rules", "learning_rate": 1e-3}
    )
    for cell in (CELL, CELL, trained):
        assert await BaseMeasures(tmp_path, cell).get(MEASURED, measure) == [0.25, 1.0]


@pytest.mark.parametrize(
    ("cell", "parts"),
    [
        (CELL, ("style", "plain", 0)),
        (CELL, ("style", "brief", 24)),
        (RealModelCell(arm="control", person="brief", seed=2, settings=CELL.settings), MEASURED),
        (RealModelCell(arm="control", person="brief", seed=1, problems=8, settings=CELL.settings), MEASURED),
        (
            RealModelCell(arm="trained", person="brief", seed=1, settings={"judge": "rules", "temperature": 0.9}),
            MEASURED,
        ),
    ],
    ids=["another person", "another stop", "another seed", "fewer questions", "another temperature"],
)
async def test_another_measure_is_made_again(tmp_path: Path, cell: RealModelCell, parts: tuple[str | int, ...]) -> None:
    measure = Measure()
    await BaseMeasures(tmp_path, CELL).get(MEASURED, measure)
    assert await BaseMeasures(tmp_path, cell).get(parts, measure) == [0.25, 2.0]
