from __future__ import annotations

from pathlib import Path

import pytest

from openclaw_rl.evaluation.arm import Arm, Plan, Point
from openclaw_rl.evaluation.charts import curves, draw_curves
from openclaw_rl.evaluation.probe import Probe


def _arm(seed: int, styles: list[float]) -> Arm:
    points = [Point(8 * at, at, Probe(10, style, 0.9, {})) for at, style in enumerate(styles)]
    return Arm(Plan(seed), points=points)


def test_a_curve_is_the_mean_over_seeds_at_each_number_of_interactions() -> None:
    style, accuracy = curves([_arm(1, [0.1, 0.7]), _arm(2, [0.3, 0.9])])
    assert [(at, pytest.approx(value.mean)) for at, value in style] == [(0, 0.2), (8, 0.8)]
    assert [value.half_width for _, value in accuracy] == [0.0, 0.0]


def test_the_picture_is_a_png_in_a_folder_that_is_made(tmp_path: Path) -> None:
    path = tmp_path / "new" / "curve.png"
    draw_curves(
        path, {"trained": [_arm(1, [0.1, 0.9]), _arm(2, [0.2, 1.0])], "control": [_arm(1, [0.1, 0.1])]}, title="A test"
    )
    assert path.read_bytes().startswith(b"\x89PNG")
