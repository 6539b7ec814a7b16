"""A trainer that merges prefixes learns what one that does not learns, from fewer tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.trainer import Recipe
from openclaw_rl.trainer_local.transformers_trainer import create
from tests.trainer_local.moved import Moved, move
from tests.trainer_local.row_by_row import PREFIX, conversation
from tests.trainer_local.tiny import sample, settings


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Moved:
    return asyncio.run(move(tmp_path_factory.mktemp("moved")))


def turns(*, floating: bool) -> list[Sample]:
    """The turns of one conversation: every second one has hints at its prompt's end, the others a reward."""
    made = []
    for number, line in enumerate(conversation(5, floating=floating)):
        prompt, answer = list(line.ids[: line.start]), list(line.ids[line.start :])
        fields: dict[str, Any] = {"reward": 1.0, "explicit": True}
        if number % 2:
            fields = {"hinted_prompts": [[*prompt, 40, hint] for hint in (41, 42)]}
        made.append(sample(number, hints=0, response=len(answer), prompt_ids=prompt, response_ids=answer, **fields))
    return made


async def learned(moved: Moved, samples: list[Sample], **changes: Any) -> tuple[Mapping[str, float], int]:
    """Metrics of a step, and the tokens that went through the policy with gradients or without."""
    trainer = create(settings(moved.policy, **changes))
    tokens: list[int] = []
    embedding = trainer._weights.plain.get_input_embeddings()
    embedding.register_forward_hook(lambda _, ids, __: tokens.append(ids[0].numel()))
    report = await trainer.step(samples, Recipe(epochs=3, learning_rate=1e-2, kl_base=0.1))
    await trainer.close()
    return report.metrics, sum(tokens)


@pytest.mark.parametrize("changes", [{}, {"lora": False}, {"recompute": True}], ids=str)
@pytest.mark.parametrize("floating", [True, False])
async def test_merging_prefixes_changes_the_cost_and_nothing_else(
    moved: Moved, floating: bool, changes: dict[str, Any]
) -> None:
    merged, tokens = await learned(moved, turns(floating=floating), **changes)
    plain, more = await learned(moved, turns(floating=floating), merge_prefixes=False, **changes)
    assert tokens < more / 3
    for name in merged.keys() - {"seconds", "seconds/teacher"}:
        assert merged[name] == pytest.approx(plain[name], rel=2e-3, abs=1e-5), name


async def test_a_step_with_dropout_shares_too_and_repeats_to_the_bit(moved: Moved) -> None:
    first, tokens = await learned(moved, turns(floating=True), lora_dropout=0.2)
    again, same = await learned(moved, turns(floating=True), lora_dropout=0.2)
    assert tokens == same
    assert {name: value for name, value in first.items() if "seconds" not in name} == {
        name: value for name, value in again.items() if "seconds" not in name
    }


async def test_a_batch_larger_than_the_budget_learns_the_same(moved: Moved) -> None:
    samples = turns(floating=True)
    reports = []
    for budget in (10_000, 32):
        trainer = create(settings(moved.base))
        reports.append((await trainer.step(samples, Recipe(epochs=1, micro_batch_tokens=budget))).metrics)
        await trainer.close()
    assert reports[0]["loss/total"] == pytest.approx(reports[1]["loss/total"], rel=1e-4)
    assert reports[0]["gradient/norm"] == pytest.approx(reports[1]["gradient/norm"], rel=1e-4)
    assert len(PREFIX) > 32
