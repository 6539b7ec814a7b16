"""Figures of finished cells, and the command's choices."""

from __future__ import annotations

from typing import Any

import pytest

from bench.environments import page, plan, report
from bench.environments.__main__ import chosen
from bench.environments.cell import EnvironmentCell, EnvironmentPoint, EnvironmentResult
from bench.environments.run import rates
from openclaw_rl.shared.errors import ConfigError


def point(passed: int, *, judged: int = 100, accuracy: float = 1.0) -> EnvironmentPoint:
    return EnvironmentPoint(version=0, judged=judged, passed=passed, steps=1.9, accuracy=accuracy, style=0.2)


def result(arm: str, seed: int, before: EnvironmentPoint, after: EnvironmentPoint, **changes: Any) -> EnvironmentResult:
    cell = EnvironmentCell(environment="sums", arm=arm, seed=seed, episodes=768, group=8, concurrency=16, max_steps=10)
    figures: dict[str, Any] = {
        "training": [],
        "versions": {"live": 1, "retired": 11},
        "steps": [],
        "quarantined": {},
        "trained": 900,
        "seconds": 200.0,
        "cpu_seconds": 180.0,
        "settled": True,
    }
    return EnvironmentResult(cell=cell, before=before, after=after, **{**figures, **changes})


TRAINED = [result("trained", seed, point(30), point(rate, accuracy=0.95)) for seed, rate in ((1, 80), (2, 90))]
CONTROL = [result("control", seed, point(30), point(rate), seconds=0.0) for seed, rate in ((1, 30), (2, 40))]


def test_rates_are_those_of_all_seeds_together() -> None:
    found = report.entries([*TRAINED, *CONTROL])["sums"]
    assert (found["before"], found["after"], found["control"]) == (0.3, 0.85, 0.35)
    assert found["placebo"] is None and found["outcome_only"] is None
    # Wilson's interval of 170 of 200: centre .8434, half width .0492.
    assert found["half_width"] == pytest.approx(0.0492, abs=1e-3)
    assert (found["seeds"], found["episodes"], found["seconds"]) == (2, 768, 200.0)
    assert found["points"]["trained"]["2"]["after"] == 0.9
    assert found["arms"]["trained"]["accuracy"] == [1.0, 0.95]


def test_an_attempt_without_a_verdict_is_in_no_rate() -> None:
    found = report.entries([result("trained", 1, point(1, judged=2), point(0, judged=0))])["sums"]
    assert found["before"] == 0.5 and found["after"] is None and found["half_width"] is None


def test_goals_are_met_by_what_was_found() -> None:
    found = report.entries([*TRAINED, *CONTROL])
    assert [row[-1] for row in report.goals(found)] == ["met"] * 4
    worse = [
        result("trained", 1, point(30), point(45, accuracy=0.9), seconds=301.0),
        result("control", 1, point(30), point(40)),
    ]
    assert [row[-1] for row in report.goals(report.entries(worse))] == ["missed"] * 4
    alone = report.goals(report.entries(TRAINED))
    assert alone[1][-1] == "not measured"


def test_the_page_claims_a_gain_of_step_rewards_only_where_intervals_are_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    saved = {"command": "c", "date": "d", "commit": "0123456789"}
    for rate, claim in ((84, "no gain of step rewards"), (50, "step rewards gain")):
        others = [result("outcome_only", seed, point(30), point(rate)) for seed in (1, 2)]
        found = report.entries([*TRAINED, *others])
        monkeypatch.setattr(page, "result", lambda _, found=found: {**saved, **found})
        assert claim in page.measured()
    monkeypatch.setattr(page, "result", lambda _: None)
    assert "Nothing yet" in page.measured()


def test_training_is_shown_in_parts() -> None:
    assert rates([True, False, True, True], parts=2) == [0.5, 1.0]
    assert rates([True] * 9, parts=8) == [1.0] * 5
    assert rates([]) == []


def test_cells_are_those_of_env_train_but_for_the_arm() -> None:
    cells = plan.grid(["sums"], list(plan.ARMS), 1)
    settings = {cell.arm: cell.settings for cell in cells}
    assert settings["trained"]["method"] == "binary" and settings["trained"]["kl_base"] == 0.01
    assert settings["trained"]["learning_rate"] == 4e-3 and settings["trained"]["guard_max_kl"] == 0.5
    assert settings["trained"] == {**settings["outcome_only"], "step_rewards": 0.5}
    assert settings["control"]["train"] is False
    assert [cell.arm for cell in cells if cell.shuffled] == ["placebo"]
    assert len({cell.key for cell in cells}) == len(plan.ARMS)


def test_the_command_names_the_choices() -> None:
    assert chosen("sums,trained,control") == (["sums"], ["trained", "control"])
    assert chosen("") == (list(plan.ENVIRONMENTS), list(plan.ARMS))
    with pytest.raises(ConfigError, match="words: choose from sums, calls, trained"):
        chosen("words")
