"""Summaries, tables, pictures, pages, goals and costs of results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bench.learning import costs, goals, page, report
from bench.learning.cell import Cell
from bench.learning.plan import FLAT_RATES, PERSONAS
from tests.bench.learning.cells import cell, result


def test_seeds_are_summarized_together() -> None:
    results = [
        result(cell(seed=1), {0: 0.1, 8: 0.5, 16: 0.9, 24: 1.0}),
        result(cell(seed=2), {0: 0.1, 8: 0.85, 16: 0.9, 24: 0.8}),
        result(cell(seed=3), {0: 0.1, 8: 0.1, 16: 0.1, 24: 0.1}),
    ]
    summary = report.arms(results)["rehearse"]["student"]
    mean = (1.0 + 0.8 + 0.1) / 3
    spread = (sum((value - mean) ** 2 for value in (1.0, 0.8, 0.1)) / 2 / 3) ** 0.5 * 4.303
    assert summary["24"]["style"] == [pytest.approx(mean, abs=1e-4), pytest.approx(spread, abs=1e-3)]
    assert (summary["24"]["kl"], summary["24"]["escape"]) == ([0.5, 0.0], 0.25)
    assert summary["24"]["style_difference"] is None, "no control"
    assert summary["to_0.8"] == 16 and summary["to_0.8_seeds"] == [16, 8, None]
    assert summary["versions_per_256"] == [32.0, 0.0] and summary["seeds"] == 3
    assert "64" not in summary
    never = report.summary("student", [results[2], results[2], results[0]])
    assert never["to_0.8"] is None
    assert json.loads(json.dumps(summary)) == summary
    assert len(report.rows(report.arms(results))[0]) == len(report.COLUMNS)


def test_differences_to_the_control_are_those_of_the_same_seed() -> None:
    ours = [result(cell(seed=seed), {24: style}, 0.9) for seed, style in ((1, 0.5), (2, 0.9), (3, 0.7))]
    control = [result(cell(arm="control", seed=seed), {24: style}) for seed, style in ((2, 0.6), (1, 0.2))]
    found = report.arms([*ours, *control])
    assert found["rehearse"]["student"]["24"]["style_difference"] == [0.3, 0.0], "seed 3 has no pair"
    assert found["rehearse"]["student"]["24"]["accuracy_difference"] == [-0.1, 0.0]
    assert found["control"]["student"]["24"]["style_difference"] is None
    row = dict(zip(report.COLUMNS, report.rows(found)[0], strict=True))
    assert row["accuracy @24 (difference)"] == "0.90±0.00 (-0.10±0.00)" and row["seeds"] == "3"


def test_a_new_wish_is_not_compared_with_the_control_of_the_old_one() -> None:
    turned = result(cell(arm="changes-mind", interactions=64), {24: 1.0, 64: 0.9})
    after = msgspec.structs.replace(turned.curves["student"][1], wants_opposite=True)
    turned.curves["student"][1] = after
    found = report.arms([turned, result(cell(arm="control"), {24: 0.1, 64: 0.1})])["changes-mind"]["student"]
    assert found["24"]["style_difference"] == [0.9, None]
    assert found["64"]["style_difference"] is None and found["64"]["accuracy_difference"] == [0.0, None]


def test_the_result_has_every_point_of_every_seed() -> None:
    found = report.points([result(cell(seed=4), {0: 0.1, 24: 1.0}), result(cell(seed=2), {0: 0.2})])
    assert found == {
        "rehearse": {
            "student": {
                "2": {"0": {"style": 0.2, "accuracy": 1.0, "kl": None}},
                "4": {
                    "0": {"style": 0.1, "accuracy": 1.0, "kl": None},
                    "24": {"style": 1.0, "accuracy": 1.0, "kl": 0.5},
                },
            }
        }
    }


def several(seed: int, *styles: float) -> Any:
    one = result(cell(arm="three-people", persona="+".join(PERSONAS), seed=seed, interactions=72), {})
    curves = {
        person: result(cell(), {24: style}).curves["student"] for person, style in zip(PERSONAS, styles, strict=True)
    }
    return msgspec.structs.replace(one, curves=curves)


def test_people_on_one_service_are_reported_each_and_by_the_worst() -> None:
    results = [several(1, 0.9, 0.1, 0.5), several(2, 0.8, 0.6, 0.3)]
    found = report.arms(results)["three-people"]
    assert found["ta"]["24"]["style"][0] == 0.35 and list(found) == list(PERSONAS)
    assert found["ta"]["versions_per_256"] == [round(256 * 3 / 216, 4), 0.0]
    worst = report.worst_of_several([*results, result(cell(), {24: 0.0})], 24)
    assert worst["three-people"]["seeds"] == [0.1, 0.3] and worst["three-people"]["style"][0] == 0.2
    assert list(worst) == ["three-people"]


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    report.draw(tmp_path / "a" / "curve.png", [result(cell(), {0: 0.1, 24: 1.0})], "title")
    assert (tmp_path / "a" / "curve.png").read_bytes().startswith(b"\x89PNG")


def arms_at(worth: dict[str, float], accuracy: float = 1.0, person: str = "student") -> dict[str, Any]:
    results = [
        result(cell(arm=arm, seed=seed, persona=person, interactions=256), {24: value, 256: value}, accuracy)
        for arm, value in worth.items()
        for seed in (1, 2)
    ]
    control = [result(cell(arm="control", seed=seed, persona=person), {24: 0.1, 256: 0.1}) for seed in (1, 2)]
    return report.arms([*results, *control])


def test_goals_are_met_or_missed_by_what_was_measured() -> None:
    rows = goals.rows(arms_at({"rehearse": 0.92}, accuracy=0.97))
    assert [row[0] for row in rows] == ["student"] * 4
    assert [row[-1] for row in rows] == ["met", "missed", "met", "not measured"]
    assert rows[1][2] == "-0.03±0.00"
    alone = {"rehearse": {"student": {"versions_per_256": [13.0, None]}}}
    assert [row[-1] for row in goals.rows(alone)] == ["not measured", "not measured", "missed", "not measured"]
    assert goals.rows({}) == []


def test_flatness_needs_every_rate() -> None:
    rates = {f"rehearse-{rate:g}": 0.9 for rate in FLAT_RATES}
    assert [row[-1] for row in goals.rows(arms_at({"rehearse": 0.94, **rates}, person="ta"))][-1] == "met"
    (*_, row) = goals.rows(arms_at({"rehearse": 0.96, **rates}, person="ta"))
    assert row[1] == "flat within 0.05 over rates 0.001 to 0.008" and row[-1] == "missed"
    assert row[2] == "0.060 (0.001: 0.90, 0.002: 0.96, 0.004: 0.90, 0.008: 0.90)"
    rates.popitem()
    (*_, row) = goals.rows(arms_at({"rehearse": 0.96, **rates}, person="ta"))
    assert row[-1] == "not measured"


def test_the_page_names_what_is_worse_without_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    results = [
        result(cell(arm=arm, seed=seed, interactions=256), {24: style + 0.01 * seed, 256: 0.9}, accuracy)
        for arm, style, accuracy in (("whole", 0.9, 0.95), ("no-anchors", 0.5, 0.96))
        for seed in (1, 2)
    ]
    named = {"command": "python", "date": "today", "commit": "a" * 40, "seeds": 2, "curve": "a.png"}
    files = {"ablation.json": {**named, "arms": report.arms(results)}}
    monkeypatch.setattr(page, "result", files.get)
    text = page.measured()
    assert "Nothing yet" in text and "commit aaaaaaaa" in text
    (line,) = [line for line in text.splitlines() if line.startswith("| no-anchors")]
    assert line.endswith("| style @24 |") and "(-0.40±0.00)" in line


def test_the_page_explains_the_arms_that_were_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    named = {"command": "python", "date": "today", "commit": "a" * 40, "seeds": 2, "curve": "a.png"}
    arms = report.arms([several(1, 0.9, 0.1, 0.5), result(cell(), {24: 1.0})])
    found = {**named, "arms": arms, "learning_rates": {"topk": {"ta": 4e-3}}}
    found["worst_of_several"] = report.worst_of_several([several(1, 0.9, 0.1, 0.5)], 24)
    monkeypatch.setattr(page, "result", {"learning.json": found}.get)
    text = page.measured()
    assert "one service that does not know who asks" in text and "sparse" not in text
    assert "The worst person of each seed in `three-people` has style 0.10 after 24" in text
    assert "| `topk` | 0.004 |" in text and "1 of 4 are met, 1 are missed, and 2 are not measured" in text


def test_the_time_left_is_estimated_by_finished_cells_of_the_kind() -> None:
    finished = [result(cell(seed=seed), {24: 1.0}, cpu_seconds=24.0 * seed) for seed in (1, 3)]
    assert costs.seconds(cell(seed=9, interactions=256), finished) == pytest.approx(2 * 256)
    together: Cell = cell(arm="three-people", persona="student+ta", interactions=72)
    assert costs.seconds(together, finished) == pytest.approx(2 * 144), "the interactions of both"
    assert costs.core_hours([together, cell()], finished) == pytest.approx((2 * 144 + 2 * 24) / 3600)
    assert costs.core_hours([cell()], []) is None and costs.core_hours([], []) == 0
