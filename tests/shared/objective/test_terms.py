"""The loss terms of a sample, and what has to be known of it before."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from openclaw_rl.shared.objective.terms import (
    hinted_prompts,
    hints_of,
    needs_base,
    needs_old,
    selects_tokens,
    signal,
    terms_of,
)
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.trainer import Recipe

TURN = Sample(
    sample_id="sample_1",
    turn_id="turn_1",
    policy="policy",
    origin="turn",
    prompt_ids=[1, 2, 3],
    response_ids=[4, 5],
    logprobs=[-1.0, -2.0],
    versions=[],
    reward=1.0,
    hinted_prompts=[[1, 2, 3, 9]],
)
PLAIN = replace(TURN, hinted_prompts=[])
ANCHOR = replace(PLAIN, origin="anchor", reward=None)


@pytest.mark.parametrize(
    ("sample", "recipe", "terms"),
    [
        (TURN, {}, {"distill"}),
        (replace(TURN, explicit=True), {}, {"distill"}),
        (replace(PLAIN, explicit=True), {}, {"binary"}),
        (PLAIN, {}, set()),
        (PLAIN, {"rewards": "all", "distillation": "none"}, {"binary"}),
        (replace(PLAIN, advantage=0.0), {"rewards": "all"}, set()),
        (replace(PLAIN, no_ratio="greedy"), {"rewards": "all"}, set()),
        (TURN, {"rewards": "all", "distillation": "select"}, {"distill", "binary"}),
        (TURN, {"rewards": "all", "distillation": "token"}, {"policy"}),
        (replace(TURN, no_ratio="greedy"), {"rewards": "all", "distillation": "token"}, set()),
        (TURN, {"kl_base": 0.1, "entropy": 0.1}, {"distill", "kl_base", "entropy"}),
        (replace(TURN, origin="rehearsal"), {"kl_base": 0.1, "entropy": 0.1}, {"distill"}),
        (ANCHOR, {}, {"anchor"}),
        (ANCHOR, {"w_anchor": 0.0}, set()),
        (replace(TURN, response_ids=[]), {"rewards": "all"}, set()),
        (TURN, {"custom_loss": "./mine.py"}, {"custom"}),
    ],
)
def test_terms_of_a_sample(sample: Sample, recipe: dict[str, Any], terms: set[str]) -> None:
    assert terms_of(sample, Recipe(**recipe)) == terms


def test_a_prompt_with_an_empty_hint_is_no_hinted_prompt() -> None:
    sample = replace(TURN, hinted_prompts=[[1, 2, 3], [1, 2, 3, 9]])
    assert hinted_prompts(sample) == [[1, 2, 3, 9]]
    assert not hints_of(replace(sample, hinted_prompts=[[1, 2, 3]]), Recipe())


def test_an_advantage_that_a_method_made_stands_for_the_reward() -> None:
    assert signal(replace(PLAIN, advantage=-0.25), Recipe(rewards="all")) == -0.25


def test_the_base_is_asked_for_anchors_kl_and_losses_of_ones_own() -> None:
    assert [needs_base(frozenset({term})) for term in ("anchor", "kl_base", "custom", "distill", "entropy")] == [
        *(True, True, True),
        *(False, False),
    ]


def test_the_policy_before_the_step_is_asked_for_what_is_selected_or_compared_by_hint() -> None:
    two = replace(TURN, hinted_prompts=[[1, 2, 3, 8], [1, 2, 3, 9]])
    assert needs_old(TURN, Recipe()) == 0
    assert needs_old(TURN, Recipe(distillation="select", select_k=3)) == 3
    assert needs_old(TURN, Recipe(hint_selection="overlap-token")) == 0
    assert needs_old(two, Recipe(hint_selection="overlap-token", select_k=6)) == 6
    assert needs_old(two, Recipe(distillation="select", hint_selection="overlap-token", select_k=6)) == 6
    assert needs_old(PLAIN, Recipe(distillation="select")) == 0
    assert needs_old(TURN, Recipe(distillation="select", select_from="overlap", select_k=3)) == 3
    # At the teacher's tokens the policy is asked once they are known.
    teachers = Recipe(distillation="select", select_from="teacher", hint_selection="overlap-token", select_k=6)
    assert (needs_old(TURN, teachers), needs_old(two, teachers)) == (0, 6)
    assert selects_tokens(TURN, teachers) and not selects_tokens(PLAIN, teachers)
