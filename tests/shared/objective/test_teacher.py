"""Recipes that can have another model as the teacher, and the refusals of the others."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from openclaw_rl.learner.methods import METHODS
from openclaw_rl.shared.objective.teacher import needed_tokens, teacher_refusal
from openclaw_rl.shared.trainer import Recipe

TEACHER = "engine:/models/large"


def recipe(method: str, **changes: Any) -> Recipe:
    return METHODS[method].recipe(Recipe(teacher=TEACHER, **changes))


@pytest.mark.parametrize(
    ("method", "changes", "tokens"),
    [
        ("opd", {}, 0),
        ("opd", {"teacher_temperature": 0.5}, 0),
        ("combined", {}, 0),
        ("topk", {"topk": 20}, 20),
        ("topk-select", {"select_from": "teacher", "select_k": 5}, 5),
        ("topk-select", {"select_from": "overlap"}, 4),
    ],
)
def test_methods_that_need_sampled_or_likeliest_tokens_can_have_it(
    method: str, changes: dict[str, Any], tokens: int
) -> None:
    assert teacher_refusal(recipe(method, **changes)) == ""
    assert needed_tokens(recipe(method, **changes)) == tokens


@pytest.mark.parametrize(
    ("method", "changes", "reason", "remedy"),
    [
        ("rehearse", {}, "whole distributions", "opd, combined, topk or topk-select"),
        ("binary", {}, "method binary has no teacher", "leave out teacher"),
        ("topk", {"topk_from": "student"}, "at the policy's tokens", "topk_from = teacher"),
        ("topk-select", {}, "at the policy's tokens", "select_from = teacher or overlap"),
        ("combined", {"hint_selection": "overlap-token"}, "several hints", "overlap-sequence"),
        ("topk", {"teacher_temperature": 2.0}, "at temperature 1, not 2", "teacher_temperature"),
        ("opd", {"custom_loss": "./mine.py"}, "custom loss", "leave out custom_loss"),
    ],
)
def test_others_are_refused_with_the_reason(method: str, changes: dict[str, Any], reason: str, remedy: str) -> None:
    refusal = teacher_refusal(recipe(method, **changes))
    assert refusal.startswith(f"teacher = {TEACHER} cannot be used: ") and reason in refusal
    assert remedy in refusal.partition("; ")[2]
    assert teacher_refusal(recipe(method, **changes).replace(teacher="base")) == ""


@pytest.mark.parametrize("name", ["policy", "engine:", "engine: ", "openai/gpt", ""])
def test_a_teacher_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="choose base, live, ema, or another model: engine:FOLDER"):
        Recipe(teacher=name)
