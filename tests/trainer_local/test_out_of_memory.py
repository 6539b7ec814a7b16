"""Steps that do not fit in memory: smaller passes, and the name of an answer that is too long."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from openclaw_rl.shared.errors import TrainerOutOfMemory
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.trainer import Recipe
from openclaw_rl.trainer_local.training.memory_limit import FILE, MemoryLimit, is_out_of_memory, take_over
from openclaw_rl.trainer_local.transformers_trainer import TransformersTrainer
from tests.out_of_memory import REAL_LOSS, SmallDevice
from tests.trainer_local.tiny import anchor, sample, settings, write_policy

RECIPE = Recipe(epochs=2, learning_rate=1e-2)
TURNS = [sample(number, prompt=10 + number, hints=1) for number in range(1, 7)]
SHARED = [
    sample(number, prompt_ids=[*TURNS[0].prompt_ids * 9, number, number], hints=0, reward=1.0, explicit=True)
    for number in range(2, 7)
]
"""Turns after one prefix of 99 tokens."""


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_policy(tmp_path_factory.mktemp("policy"))


def weights(trainer: TransformersTrainer) -> dict[str, torch.Tensor]:
    return {name: part.detach().clone() for name, part in trainer._weights.masters.items()}


def equal(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(
    ("samples", "room"), [([*TURNS, anchor(9)], 40), (SHARED, 112)], ids=["next to each other", "a shared prefix"]
)
async def test_passes_are_halved_until_they_fit_in_a_model_that_raises_and_stay_so(
    policy: Path, samples: list[Sample], room: int
) -> None:
    trainer = TransformersTrainer(settings(policy, lora_dropout=0.2))
    device = SmallDevice(trainer._weights.plain, room)
    first = await trainer.step(samples, RECIPE)
    tokens = int(first.metrics["micro_batch_tokens"])
    assert device.failed and tokens == device.failed[-1] // 2
    assert device.kept == 0, "the pass that failed was still in memory when the step was tried again"
    failed = len(device.failed)
    second = await trainer.step(samples, RECIPE)
    assert (len(device.failed), second.metrics["micro_batch_tokens"]) == (failed, tokens)

    asked = TransformersTrainer(settings(policy, lora_dropout=0.2))
    for _ in range(2):
        await asked.step(samples, RECIPE.replace(micro_batch_tokens=tokens))
    assert equal(weights(trainer), weights(asked))
    await trainer.close()
    await asked.close()


async def test_an_answer_that_does_not_fit_alone_in_a_model_that_raises_is_named_and_changes_nothing(
    policy: Path,
) -> None:
    trainer = TransformersTrainer(settings(policy))
    SmallDevice(trainer._weights.plain, 60)
    before = weights(trainer)
    long = sample(8, prompt=50, response=30, hints=0, reward=1.0, explicit=True)
    with pytest.raises(
        TrainerOutOfMemory, match=r"sample_8 \(30 tokens after a prompt of 50\) does not fit in memory even alone"
    ) as raised:
        await trainer.step([*TURNS, long], RECIPE)
    assert raised.value.sample_id == "sample_8"
    assert equal(weights(trainer), before)
    assert (await trainer.step(TURNS, RECIPE)).step == 1
    await trainer.close()


async def test_an_allocation_that_really_fails_halves_passes_too(policy: Path, tmp_path: Path) -> None:
    trainer = TransformersTrainer(settings(policy))

    def with_room(tokens: int) -> Recipe:
        hook = tmp_path / f"loss_{tokens}.py"
        hook.write_text(REAL_LOSS.replace("MOST", str(tokens)))
        return RECIPE.replace(custom_loss=f"{hook}:loss")

    report = await trainer.step(TURNS, with_room(9))
    assert report.metrics["micro_batch_tokens"] < sum(len(one.prompt_ids) + 4 for one in TURNS)
    with pytest.raises(TrainerOutOfMemory, match=r"custom_loss .* can't allocate memory") as raised:
        await trainer.step(TURNS, with_room(3))
    assert raised.value.sample_id in {one.sample_id for one in TURNS}
    await trainer.close()


@pytest.mark.parametrize("place", ["snapshot", "update"])
async def test_memory_that_no_pass_takes_is_no_samples_fault(
    policy: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an optimizer, or a copy of the weights, that raises torch's error."""
    trainer = TransformersTrainer(settings(policy))
    before = weights(trainer)

    def raises(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    with monkeypatch.context() as patch:
        owner, name = (trainer._weights, "snapshot") if place == "snapshot" else (torch.optim.AdamW, "step")
        patch.setattr(owner, name, raises)
        with pytest.raises(TrainerOutOfMemory, match="CUDA out of memory") as raised:
            await trainer.step(TURNS, RECIPE)
    assert (raised.value.sample_id, raised.value.tokens) == ("", 0)
    assert equal(weights(trainer), before)
    assert (await trainer.step(TURNS, RECIPE)).metrics["micro_batch_tokens"] == RECIPE.micro_batch_tokens
    await trainer.close()


def test_only_failed_allocations_are_out_of_memory() -> None:
    with pytest.raises(RuntimeError) as real:
        torch.empty(1 << 50, dtype=torch.uint8)
    assert is_out_of_memory(real.value)
    wrapped = ValueError("a hook failed")
    wrapped.__cause__ = torch.OutOfMemoryError("CUDA out of memory.")
    assert is_out_of_memory(wrapped) and not is_out_of_memory(RuntimeError("shapes do not fit"))


@pytest.mark.parametrize(
    "message",
    [
        "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported",
        "CUDA driver error: out of memory",
        "Triton Error [CUDA]: out of memory",
        "NCCL Error 1: unhandled cuda error\nLast error:\nCuda failure 2 'out of memory'",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory: you tried to allocate",
    ],
)
def test_allocations_that_fail_outside_of_torchs_allocator_are_out_of_memory(message: str) -> None:
    assert is_out_of_memory(RuntimeError(message)) and not is_out_of_memory(ValueError(message))


def test_limits_are_handed_to_the_next_process_once(policy: Path, tmp_path: Path) -> None:
    chosen = settings(policy, data=tmp_path)
    limit = MemoryLimit(failed={"sample_1": 40}, recomputed=2, layers=2)
    assert limit.lower(TrainerOutOfMemory("a pass", tokens=100))
    assert not limit.lower(TrainerOutOfMemory("a row", sample_id="sample_1"))
    limit.hand_over(chosen)
    found = take_over(chosen)
    assert (found.tokens, found.failed, found.recomputed) == (50, {"sample_1": 40}, 2)
    assert take_over(chosen) == MemoryLimit() and not (chosen.checkpoints_path / FILE).exists()
    found.check([sample(1, response=39), sample(2, response=50)])
    with pytest.raises(TrainerOutOfMemory, match="did not fit in memory with 40 tokens before"):
        found.check([sample(1, response=40)])
    other = MemoryLimit(30, {"sample_1": 50, "sample_2": 7})
    found.merge([other])
    assert (found.tokens, found.failed) == (30, {"sample_1": 40, "sample_2": 7})
    started = MemoryLimit(recomputed=3, layers=9)
    started.merge([MemoryLimit(recomputed=5), MemoryLimit()])
    assert started.recomputed == 5
    without = MemoryLimit()
    without.merge([started])
    assert without.recomputed == 0, "recompute = false"


def test_more_layers_recompute_before_passes_are_halved() -> None:
    limit = MemoryLimit(layers=10)
    row, whole = TrainerOutOfMemory("a row", sample_id="sample_1"), TrainerOutOfMemory("a pass", tokens=80)
    grown = [(limit.lower(error), limit.recomputed, limit.tokens) for error in (whole, row, whole, whole)]
    assert grown == [(True, count, None) for count in (3, 6, 9, 10)]
    assert not limit.lower(row), "one row alone does not fit, though all layers recompute"
    assert limit.lower(whole) and limit.tokens == 40
    assert not MemoryLimit(layers=10).lower(TrainerOutOfMemory("the optimizer"))


@pytest.mark.parametrize(("recompute", "recomputed"), [("auto", 1), (True, 1), (False, 0)])
async def test_layers_recompute_after_a_pass_that_did_not_fit_unless_it_is_forbidden(
    policy: Path, recompute: bool | str, recomputed: int
) -> None:
    trainer = TransformersTrainer(settings(policy, recompute=recompute))
    assert trainer._limit.recomputed == (recompute is True)
    device = SmallDevice(trainer._weights.plain, 40)
    await trainer.step(TURNS, RECIPE)
    assert trainer._limit.recomputed == recomputed
    tried = device.failed[1:] if recompute == "auto" else device.failed
    assert len(set(tried)) == len(tried), "smaller at each failure"
    assert (device.failed[0] == device.failed[1]) == (recompute == "auto"), "the first is tried again"
    await trainer.close()
