"""Passes over a batch end when the teacher has hardly anything left to teach."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from openclaw_rl.shared.objective import early_stop
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.trainer import Recipe
from openclaw_rl.trainer_local.transformers_trainer import TransformersTrainer
from tests.trainer_local import plain
from tests.trainer_local.tiny import anchor, sample, settings, write_policy

SAMPLES = [sample(1, response=5, hints=1), sample(2, prompt=9, response=3, hints=1), sample(3, hints=0)]


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_policy(tmp_path_factory.mktemp("policy"))


def to_teach(policy: Path) -> float:
    """Mean of KL(base ‖ teacher) over the answers' tokens, in plain Python."""
    values = []
    for one in SAMPLES[:2]:
        base = plain.log_probs(policy, one.prompt_ids, one.response_ids)
        teacher = plain.log_probs(policy, one.hinted_prompts[0], one.response_ids)
        values += [plain.divergence(*pair) for pair in zip(base, teacher, strict=True)]
    return math.fsum(values) / len(values)


async def passes(policy: Path, **changes: float) -> tuple[float, float]:
    trainer = TransformersTrainer(settings(policy))
    try:
        report = await trainer.step(SAMPLES, Recipe(**({"epochs": 30, "learning_rate": 2e-2} | changes)))  # type: ignore[arg-type]
    finally:
        await trainer.close()
    return report.metrics["epochs"], report.metrics["loss/distill"]


@pytest.mark.parametrize("share", [0.5, 0.1])
async def test_passes_end_when_the_share_that_is_left_is_small(
    policy: Path, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(early_stop, "UNNOTICEABLE", 0.0)
    distance = to_teach(policy)
    made, left = await passes(policy, early_stop=share)
    assert 1 < made < 30
    assert left <= share * distance
    _, before = await passes(policy, early_stop=0.0, epochs=int(made))
    assert before > share * distance, "what its last pass began with was too much"


@pytest.mark.parametrize("source", ["teacher", "student"])
async def test_passes_over_k_tokens_end_at_the_share_too(
    policy: Path, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(early_stop, "UNNOTICEABLE", 0.0)
    shape: dict[str, Any] = {"distillation": "topk", "topk": 8, "topk_from": source}
    (_, first) = await passes(policy, early_stop=0.0, epochs=1, **shape)
    made, left = await passes(policy, early_stop=0.5, **shape)
    assert 1 <= made < 30 and 0 < left <= 0.55 * first < 0.5 * to_teach(policy), "both in the bins of the loss"
    _, before = await passes(policy, early_stop=0.0, **(shape | {"epochs": int(made)}))
    assert before > 0.45 * first


async def test_a_teacher_that_moves_gives_no_distance_to_reach(policy: Path) -> None:
    shape: dict[str, Any] = {"distillation": "topk", "divergence": "jensen-shannon"}
    assert (await passes(policy, early_stop=0.9, epochs=3, **shape))[0] == 3


async def test_an_unnoticeable_distance_is_small_enough(policy: Path) -> None:
    assert to_teach(policy) * 0.01 < early_stop.UNNOTICEABLE
    made, left = await passes(policy, early_stop=0.01)
    assert made < 30 and left <= early_stop.UNNOTICEABLE


async def test_without_it_all_are_made_and_with_nothing_to_teach_one(policy: Path) -> None:
    assert (await passes(policy, early_stop=0.0, epochs=5))[0] == 5
    assert (await passes(policy, early_stop=0.99))[0] == 1
    assert (await passes(policy, early_stop=0.1, w_opd=7.0))[0] > 1, "the weight of the term changes nothing"


@pytest.mark.parametrize(
    ("one", "recipe", "made"),
    [
        (sample(3, hints=0, reward=-1.0, explicit=True), {}, 4),
        (anchor(3), {}, 0),
        (sample(3, hints=1, logprobs=[-6.0] * 4), {"distillation": "token", "rewards": "all"}, 4),
        (sample(3, hints=1, logprobs=[-6.0] * 4), {"distillation": "select", "rewards": "all"}, 4),
    ],
    ids=["a reward", "an anchor", "an advantage per token", "clipped differences"],
)
async def test_only_a_distance_to_the_teacher_ends_passes(
    policy: Path, one: Sample, recipe: dict[str, Any], made: int
) -> None:
    trainer = TransformersTrainer(settings(policy))
    report = await trainer.step([one], Recipe(epochs=4, early_stop=0.1, **recipe))
    await trainer.close()
    assert report.metrics["epochs"] == made


async def state(trainer: TransformersTrainer, folder: Path) -> dict[str, Any]:
    """Everything that a checkpoint holds."""
    await trainer.save(str(folder))
    found: dict[str, Any] = torch.load(folder / "trainer.pt", weights_only=False)
    return found


@pytest.mark.parametrize("minibatches", [1, 2])
async def test_a_batch_that_is_known_makes_no_update_and_changes_nothing(
    policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, minibatches: int
) -> None:
    monkeypatch.setattr(early_stop, "UNNOTICEABLE", 0.0)
    recipe = Recipe(epochs=60, learning_rate=2e-2, early_stop=0.1, minibatches=minibatches)
    batch = [*SAMPLES, anchor(4), anchor(5)]
    trainer = TransformersTrainer(settings(policy))
    try:
        learned = await trainer.step(batch, recipe)
        before = await state(trainer, tmp_path / "before")
        again = await trainer.step(batch, recipe.replace(early_stop=0.5))
        after = await state(trainer, tmp_path / "after")
        more = await trainer.step(batch, recipe.replace(early_stop=0.01, epochs=1))
    finally:
        await trainer.close()
    assert learned.updates > 1 and learned.step == 1
    assert again.updates == 0 and again.metrics["epochs"] == 0 and again.metrics["weights/change"] == 0
    assert 0 < again.metrics["loss/distill"] <= 0.5 * to_teach(policy)
    torch.testing.assert_close(after, before, rtol=0, atol=0)
    assert more.updates == minibatches and more.step == 2, "the step that changed nothing has no number"


async def test_a_reward_is_learned_from_next_to_hints_that_are_known(policy: Path) -> None:
    known = Recipe(epochs=1).replace(early_stop=2.0)
    trainer = TransformersTrainer(settings(policy))
    try:
        assert (await trainer.step(SAMPLES, known)).updates == 0
        praised = sample(7, hints=0, reward=1.0, explicit=True)
        assert (await trainer.step([*SAMPLES, praised], known)).updates == 1
    finally:
        await trainer.close()
