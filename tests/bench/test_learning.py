"""The learning bench: its plan, cache, wrong judges and figures, and one small cell for real."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.learning import judges, plan, report
from bench.learning.cache import Cache, run_all
from bench.learning.cell import SPLIT_SEEDS, Cell, CurvePoint, Result
from bench.learning.run import run
from bench.learning.talk import Contrary
from openclaw_rl.learner.judge.rules.rules import read_message
from openclaw_rl.shared.records import NextState, VersionSpan
from openclaw_rl.shared.settings.settings import Settings
from tests.learner.things import turn

RATES = dict.fromkeys(plan.METHODS, 1e-3)


def cell(**changes: Any) -> Cell:
    fields: dict[str, Any] = {"arm": "rehearse", "persona": "student", "seed": 1, "interactions": 24, "lanes": 8}
    return Cell(**(fields | changes))


def result(of: Cell, styles: dict[int, float], accuracy: float = 1.0) -> Result:
    points = [
        CurvePoint(
            interactions=at, version=0, count=4, style=style, accuracy=accuracy, escape=0.25, kl=0.5 if at else None
        )
        for at, style in styles.items()
    ]
    return Result(cell=of, points=points, versions={"live": 1}, complaints=3, seconds=1.0, cpu_seconds=1.0)


def test_the_grid_has_every_arm_with_every_persona_and_seed_and_noise_with_the_student() -> None:
    cells = plan.grid((*plan.ARMS, *plan.STUDENT_ONLY), plan.PERSONAS, 2, 256, RATES)
    assert len({one.key for one in cells}) == len(cells) == 2 * (len(plan.ARMS) * 3 + len(plan.STUDENT_ONLY))
    for one in cells:
        settings = Settings(**one.settings)  # type: ignore[arg-type]
        assert one.lanes == settings.learning.batch_size or one.arm == "control"
        assert settings.guard.enabled is False
    assert {one.arm for one in cells if one.turns_about} == {"changes-mind"}


def test_rates_are_searched_on_other_seeds_with_the_same_rates_for_all() -> None:
    cells = plan.search(plan.METHODS)
    assert min(one.seed for one in cells) > SPLIT_SEEDS["search"] > 1000
    tried = {
        method: {one.settings["learning_rate"] for one in cells if one.settings["method"] == method}
        for method in plan.METHODS
    }
    assert all(found == set(plan.RATES) for found in tried.values())
    results = [
        result(
            one, {24: 0.0, 64: 0.5, 128: 1.0 if one.settings["learning_rate"] == plan.RATES[2] else 0.6}, accuracy=0.8
        )
        for one in cells
    ]
    best, table = plan.best_rates(results)
    assert best == dict.fromkeys(plan.METHODS, plan.RATES[2])
    assert table["opd"][f"{plan.RATES[2]:g}"] == pytest.approx(0.8 * (0.0 + 0.5 + 1.0) / 3, abs=1e-4)


def test_a_style_that_wrecks_accuracy_is_worth_less() -> None:
    assert plan.worth(result(cell(), {24: 1.0}, accuracy=0.2)) < plan.worth(result(cell(), {24: 0.5}, accuracy=0.9))


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
    assert (summary["24"]["kl"], summary["24"]["escape"]) == (0.5, 0.25)
    assert summary["to_0.8"] == 16 and summary["to_0.8_seeds"] == [16, 8, None]
    assert "64" not in summary
    never = report.summary([results[2], results[2], results[0]])
    assert never["to_0.8"] is None
    assert json.loads(json.dumps(summary)) == summary
    assert len(report.rows(report.arms(results))[0]) == len(report.COLUMNS)


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    report.draw(tmp_path / "a" / "curve.png", [result(cell(), {0: 0.1, 24: 1.0})], "title")
    assert (tmp_path / "a" / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_a_cell_is_kept_whole_and_found_again_only_for_the_same_work(tmp_path: Path) -> None:
    cache = Cache(tmp_path, Result)
    kept = result(cell(), {0: 0.1})
    assert cache.get(kept.cell) is None
    cache.put(kept.cell, kept)
    assert cache.get(cell()) == kept
    assert cache.get(cell(settings={"learning_rate": 0.5})) is None
    assert [path.suffix for path in tmp_path.iterdir()] == [".json"]


async def heard(judge: Any, text: str, number: int = 1) -> Any:
    one = turn(number, versions=[VersionSpan(0, 0, 3)])
    return await judge.judge(one, NextState(turn_id=one.turn_id, role="user", text=text))


async def test_wrong_judges_are_wrong_about_their_share() -> None:
    judge = judges.Wrong30(Settings())
    found = [await heard(judge, "thanks!", number) for number in range(300)]
    wrong = [one for one in found if one.score == -1.0]
    assert 60 < len(wrong) < 120
    assert all(one.hint for one in wrong)
    right = [await heard(judges.Wrong5(Settings()), "no bold please") for _ in range(100)]
    assert sum(one.score == 1.0 and one.hint is None for one in right) < 20


def test_a_changed_mind_is_understood_by_the_judge() -> None:
    contrary = Contrary(1)
    for _ in range(40):
        reading = read_message(contrary.react("It is twelve apples.").text, answer="It is twelve apples.")
        assert reading.score == -1 and reading.hint
    assert contrary.react("**Step 1:** 4 + 3 = 7").mood == "thanks"


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_cell_runs_for_real_and_a_finished_one_is_not_run_again(tmp_path: Path) -> None:
    cache = Cache(tmp_path, Result)
    cells = [cell(interactions=8, problems=12, glances=4, settings={"guard": False})]
    calls: list[int] = []
    (found,) = run_all(cells, cache, 1, run, lambda done, *_: calls.append(done))
    assert [point.interactions for point in found.points] == [0, 8]
    assert (found.points[0].version, found.points[1].version) == (0, 1)
    assert found.complaints >= 1 and found.late == 0
    assert found.points[1].kl is not None and found.points[1].kl > 0
    assert run_all(cells, cache, 1, run, lambda done, *_: calls.append(done)) == [found]
    assert calls == [1]
