"""Teachers other than the base: the policy a step began with, and its moving average."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from transformers import AutoModelForCausalLM

from openclaw_rl.shared.records import Sample, TeacherScores
from openclaw_rl.shared.trainer import Recipe
from openclaw_rl.trainer_local.training import targets
from openclaw_rl.trainer_local.training.targets import swapped_weights
from openclaw_rl.trainer_local.transformers_trainer import TransformersTrainer, create
from tests.trainer_local import plain
from tests.trainer_local.moved import Moved, move
from tests.trainer_local.tiny import anchor, sample, settings


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Moved:
    return asyncio.run(move(tmp_path_factory.mktemp("moved")))


def recipe(**changes: Any) -> Recipe:
    return Recipe(**({"learning_rate": 1e-2, "epochs": 1} | changes))


def divergence(student: Path, taught_by: Path, one: Sample) -> float:
    """Mean KL of the student from the teacher under the hints."""
    mine = plain.log_probs(student, one.prompt_ids, one.response_ids)
    target = plain.mean([plain.log_probs(taught_by, prompt, one.response_ids) for prompt in one.hinted_prompts])
    return math.fsum(plain.divergence(*pair) for pair in zip(mine, target, strict=True)) / len(mine)


def state(folder: Path) -> dict[str, torch.Tensor]:
    return dict(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict())


async def exported(trainer: TransformersTrainer, folder: Path) -> Path:
    await trainer.export(str(folder))
    return folder


async def test_the_live_teacher_is_the_policy_that_the_step_began_with(moved: Moved) -> None:
    one = sample(1)
    metrics = await moved.metrics([one], teacher="live")
    assert metrics["loss/distill"] == pytest.approx(divergence(moved.policy, moved.policy, one), rel=1e-3)
    assert metrics["loss/distill"] != pytest.approx(divergence(moved.policy, moved.base, one), rel=1e-2)


async def test_the_live_teacher_stays_as_it_was_during_the_step(moved: Moved, tmp_path: Path) -> None:
    one = sample(1)
    after = await moved.after([one], tmp_path / "after", teacher="live")
    metrics = await moved.metrics([one], teacher="live", epochs=2)
    assert metrics["loss/distill"] == pytest.approx(divergence(after, moved.policy, one), rel=1e-3)


async def test_the_live_teacher_is_the_same_when_targets_are_computed_again(
    moved: Moved, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = [*(sample(seed) for seed in range(1, 5)), anchor(9)]
    for kind in ({}, {"distillation": "topk", "topk_from": "student"}, {"distillation": "token"}):
        whole = await moved.metrics(samples, teacher="live", epochs=3, **kind)
        with monkeypatch.context() as small:
            small.setattr(targets, "TARGET_BYTES", 2000)
            sliced = await moved.metrics(samples, teacher="live", epochs=3, **kind)
        assert sliced["loss/total"] == pytest.approx(whole["loss/total"], rel=1e-3)


def scored(base: Path, one: Sample, count: int) -> Sample:
    """The sample with the scores that an engine of `base` gives the answer under the hint."""
    rows = plain.log_probs(base, one.hinted_prompts[0], one.response_ids, one.temperature)
    plainly = plain.log_probs(base, one.hinted_prompts[0], one.response_ids)
    top = [[(row[token], token) for token in plain.likeliest(row, count)] for row in plainly]
    return replace(one, taught=TeacherScores(plain.sampled(rows, one.response_ids), top))


OTHER_TEACHER: dict[str, dict[str, Any]] = {
    "sampled tokens": {"distillation": "token", "rewards": "all", "aggregation": "sample"},
    "likeliest tokens": {"distillation": "topk", "topk": 7},
    "selected tokens of the teacher": {"distillation": "select", "select_from": "teacher", "select_k": 5},
    "selected tokens of both": {"distillation": "select", "select_from": "overlap", "select_k": 12, "kl_base": 0.1},
}


@pytest.mark.parametrize("kind", OTHER_TEACHER, ids=str)
async def test_an_engine_of_the_base_teaches_as_the_base_does(moved: Moved, kind: str) -> None:
    """The scores are those of the base, so that the step must be that of `teacher = base`."""
    turns = [sample(1, hints=1, response=5, temperature=0.7, reward=1.0), sample(2, hints=1, prompt=9, reward=-1.0)]
    others = [sample(3, hints=0, reward=1.0), anchor(4)]
    how = OTHER_TEACHER[kind]
    base = await moved.metrics([*turns, *others], epochs=2, **how)
    taught = [scored(moved.base, one, 12) for one in turns]
    engine = await moved.metrics([*taught, *others], epochs=2, teacher="engine:http://elsewhere", **how)
    assert base["weights/change"] > 0
    for name in ("loss/total", "loss/distill", "weights/change", "gradient/norm", "samples/distill", "epochs"):
        assert engine[name] == pytest.approx(base[name], rel=1e-3, abs=1e-6), name


async def test_a_turn_that_the_engine_has_not_scored_learns_from_its_reward_alone(moved: Moved) -> None:
    one = sample(1, hints=1, reward=1.0)
    how = {"distillation": "select", "select_from": "teacher", "rewards": "all"}
    untaught = await moved.metrics([one], teacher="engine:http://elsewhere", **how)
    rewarded = await moved.metrics([replace(one, hinted_prompts=[])], **how)
    assert untaught["samples/distill"] == 0 and untaught["weights/change"] == rewarded["weights/change"] > 0


async def test_the_anchor_holds_to_the_base_with_every_teacher(moved: Moved) -> None:
    found = [await moved.metrics([sample(1), anchor(2)], teacher=who) for who in ("base", "live", "ema")]
    assert found[0]["loss/anchor"] == pytest.approx(found[1]["loss/anchor"], rel=1e-4)
    assert found[0]["loss/anchor"] == pytest.approx(found[2]["loss/anchor"], rel=1e-4)


async def test_the_moving_average_starts_at_the_first_weights_and_follows_by_its_decay(
    moved: Moved, tmp_path: Path
) -> None:
    trainer = create(settings(moved.base, lora=False))
    folders = [moved.base]
    for number in range(2):
        await trainer.step([sample(number)], recipe(teacher="ema", ema_decay=0.75))
        folders.append(await exported(trainer, tmp_path / str(number)))
    weights = [state(folder) for folder in folders]
    first = {name: 0.75 * weights[0][name] + 0.25 * weights[1][name] for name in weights[0]}
    average = {name: 0.75 * first[name] + 0.25 * weights[2][name] for name in first}
    model = AutoModelForCausalLM.from_pretrained(moved.base, dtype=torch.float32)
    model.load_state_dict(average)
    model.save_pretrained(tmp_path / "average")
    one = sample(7)
    metrics = (await trainer.step([one], recipe(teacher="ema", ema_decay=0.75))).metrics
    await trainer.close()
    assert metrics["loss/distill"] == pytest.approx(divergence(folders[2], tmp_path / "average", one), rel=1e-3)


@pytest.mark.parametrize("lora", [True, False])
async def test_the_moving_average_is_saved_and_comes_back_to_the_bit(moved: Moved, tmp_path: Path, lora: bool) -> None:
    averaged = recipe(teacher="ema", ema_decay=0.5, learning_rate=5e-2)
    whole, resumed, without = (create(settings(moved.base, lora=lora)) for _ in range(3))
    for seed in (1, 2):
        await whole.step([sample(seed)], averaged)
    checkpoint = await whole.save(str(tmp_path / "2"))
    expected = (await whole.step([sample(3)], averaged)).metrics
    await resumed.restore(checkpoint.path)
    found = (await resumed.step([sample(3)], averaged)).metrics
    assert [found[name] for name in ("loss/total", "weights/change", "kl/parent")] == [
        expected[name] for name in ("loss/total", "weights/change", "kl/parent")
    ]
    first, second = state(await exported(whole, tmp_path / "a")), state(await exported(resumed, tmp_path / "b"))
    assert all(torch.equal(first[name], second[name]) for name in first)

    # A checkpoint of before there were averages starts from its own weights, as `live` does.
    file = Path(checkpoint.path) / "trainer.pt"
    held = torch.load(file, weights_only=True)
    del held["average"]
    torch.save(held, file)
    await resumed.restore(checkpoint.path)
    await without.restore(checkpoint.path)
    restored = (await resumed.step([sample(3)], averaged)).metrics["loss/total"]
    live = (await without.step([sample(3)], recipe(teacher="live", learning_rate=5e-2))).metrics["loss/total"]
    assert restored == live != expected["loss/total"]
    for trainer in (whole, resumed, without):
        await trainer.close()


async def test_going_back_to_the_base_forgets_the_average(moved: Moved) -> None:
    averaged = recipe(teacher="ema", ema_decay=0.9)
    trainer, fresh = create(settings(moved.base)), create(settings(moved.base))
    await trainer.step([sample(1)], averaged)
    await trainer.restore(None)
    found = [(await one.step([sample(2)], averaged)).metrics["loss/total"] for one in (trainer, fresh)]
    again = [(await one.step([sample(3)], averaged)).metrics["loss/total"] for one in (trainer, fresh)]
    assert (found[0], again[0]) == (found[1], again[1])
    await trainer.close()
    await fresh.close()


async def test_dropout_is_the_students_alone(moved: Moved) -> None:
    found = []
    for dropout in (0.0, 0.5):
        trainer = await moved.trainer(lora_dropout=dropout)
        token = (await trainer.step([sample(1)], recipe(teacher="live", distillation="token"))).metrics
        await trainer.close()
        found.append((token["advantage/mean"], token["ratio/mean"]))
    assert found[0][0] == found[1][0], "the teacher"
    assert found[0][1] != pytest.approx(found[1][1], rel=1e-3), "the student, after the teacher was asked"


def test_other_weights_are_worn_for_a_while_only() -> None:
    layer = torch.nn.Linear(2, 2)
    before = layer.weight.detach().clone()
    parameters = dict(layer.named_parameters())
    with (
        pytest.raises(RuntimeError, match="midway"),
        swapped_weights(parameters, {"weight": 2 * before, "bias": layer.bias}),
    ):
        assert torch.equal(layer.weight, 2 * before)
        raise RuntimeError("midway")
    assert torch.equal(layer.weight, before)
    layer(torch.ones(2)).sum().backward()
    assert layer.weight.grad is not None
