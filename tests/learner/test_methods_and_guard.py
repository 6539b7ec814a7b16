"""The samples that teach under each method, and the steps that may serve."""

from __future__ import annotations

from typing import Any

import pytest

from openclaw_rl.learner.guard.guard import GuardVerdict, examine
from openclaw_rl.learner.methods import method
from openclaw_rl.shared.errors import ConfigError, TrainerError
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.trainer import Recipe, StepReport


def sample(**changes: Any) -> Sample:
    fields: dict[str, Any] = {
        "sample_id": "s",
        "turn_id": "t",
        "policy": "policy",
        "origin": "turn",
        "prompt_ids": [1],
        "response_ids": [2],
        "logprobs": [-1.0],
        "versions": [],
    }
    return Sample(**(fields | changes))


@pytest.mark.parametrize(
    ("changes", "rehearse", "binary"),
    [
        ({"hint": "no bold", "reward": -1.0}, True, True),
        ({"reward": -1.0}, False, True),
        ({"reward": 1.0, "explicit": True}, True, True),
        ({"reward": 0.0, "explicit": True}, False, False),
        ({}, False, False),
    ],
)
def test_samples_teach_under_each_method(changes: dict[str, Any], rehearse: bool, binary: bool) -> None:
    assert method("rehearse").informative(sample(**changes)) is rehearse
    assert method("binary").informative(sample(**changes)) is binary


@pytest.mark.parametrize(
    ("changes", "rehearse", "binary"),
    [
        ({"hint": "no bold", "reward": -1.0, "explicit": True}, True, False),
        ({"reward": 1.0, "explicit": True}, False, False),
        ({"reward": -1.0}, False, False),
    ],
)
def test_without_an_importance_ratio_a_hint_teaches_and_a_reward_does_not(
    changes: dict[str, Any], rehearse: bool, binary: bool
) -> None:
    without = sample(no_ratio="sampled with top_p 0.9", **changes)
    assert method("rehearse").informative(without) is rehearse
    assert method("binary").informative(without) is binary


@pytest.mark.parametrize(
    ("changes", "rehearse", "binary"),
    [
        ({"hint": "no bold", "reward": -1.0, "explicit": True}, False, True),
        ({"reward": 1.0, "explicit": True}, True, True),
        ({"reward": -1.0}, False, True),
        ({"reward": 0.0}, False, True),
    ],
)
def test_the_loss_without_a_ratio_is_reported(changes: dict[str, Any], rehearse: bool, binary: bool) -> None:
    without = sample(no_ratio="sampled with top_p 0.9", **changes)
    for name, lost in (("rehearse", rehearse), ("binary", binary)):
        reason = method(name).cannot_use(without)
        assert ("top_p 0.9" in reason and name in reason) if lost else reason == ""
    assert method("binary").cannot_use(sample(**changes)) == ""


def test_a_method_keeps_its_own_terms() -> None:
    rehearse, binary = (method(name).recipe(Recipe()) for name in ("rehearse", "binary"))
    assert (rehearse.w_opd, rehearse.w_anchor, rehearse.w_rl) == (1.0, 1.0, 1.0)
    assert (binary.method, binary.w_opd, binary.w_anchor, binary.w_rl) == ("binary", 0.0, 0.0, 1.0)


def test_an_unknown_method_is_named_with_those_that_exist() -> None:
    with pytest.raises(ConfigError, match="rehearse"):
        method("magic")


def report(**metrics: float) -> StepReport:
    return StepReport(step=1, sample_ids=[], metrics=metrics)


def test_the_guard_says_why() -> None:
    assert examine(report(**{"kl/parent": 0.1}), max_kl=2.0).passed
    far = examine(report(**{"kl/parent": 3.0}), max_kl=2.0)
    assert not far.passed and "guard_max_kl = 2" in far.reason
    broken = examine(report(**{"loss/total": float("nan")}), max_kl=2.0)
    assert not broken.passed and "loss/total" in broken.reason
    failed = GuardVerdict(False, str(TrainerError("out of memory")))
    assert failed.report() == {"passed": False, "reason": "out of memory"}
