"""AdamW as the recipe says, on schedule, and its state on the host between steps."""

from __future__ import annotations

import asyncio
import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from openclaw_rl.shared.trainer import Recipe
from openclaw_rl.trainer_local.training.optimizer import adamw, follow, move_state
from openclaw_rl.trainer_local.transformers_trainer import create
from tests.trainer_local.moved import Moved, move
from tests.trainer_local.tiny import anchor, sample, settings


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Moved:
    return asyncio.run(move(tmp_path_factory.mktemp("moved")))


def test_two_steps_by_hand() -> None:
    recipe = Recipe(learning_rate=0.1, beta1=0.8, beta2=0.9, epsilon=0.01, weight_decay=0.5, lr_warmup_steps=1)
    weight = torch.nn.Parameter(torch.tensor([2.0], dtype=torch.float64))
    optimizer = adamw([weight], Recipe())
    value, mean, square = 2.0, 0.0, 0.0
    for step, gradient in enumerate((3.0, -1.0)):
        rate = 0.1 * (step + 1) / 2 if step < 1 else 0.1
        assert follow(optimizer, recipe, step) == pytest.approx(rate)
        weight.grad = torch.tensor([gradient], dtype=torch.float64)
        optimizer.step()
        mean = 0.8 * mean + 0.2 * gradient
        square = 0.9 * square + 0.1 * gradient**2
        direction = (mean / (1 - 0.8 ** (step + 1))) / (math.sqrt(square / (1 - 0.9 ** (step + 1))) + 0.01)
        value = value * (1 - rate * 0.5) - rate * direction
        assert float(weight) == pytest.approx(value)


async def test_the_learning_rate_follows_the_schedule_over_steps_and_restarts(moved: Moved, tmp_path: Path) -> None:
    recipe = Recipe(learning_rate=1e-2, lr_schedule="inverse:0.5", lr_warmup_steps=2, epochs=2)
    trainer, resumed = create(settings(moved.base)), create(settings(moved.base))
    rates = [(await trainer.step([sample(1)], recipe)).metrics["learning_rate"] for _ in range(4)]
    checkpoint = await trainer.save(str(tmp_path / "4"))
    await resumed.restore(checkpoint.path)
    rates.append((await resumed.step([sample(1)], recipe)).metrics["learning_rate"])
    assert rates == pytest.approx([1e-2 / 3, 2e-2 / 3, 1e-2, 1e-2 / 1.5, 1e-2 / 2])
    await trainer.close()
    await resumed.close()


async def test_a_failed_step_does_not_move_the_schedule_on(moved: Moved) -> None:
    recipe = Recipe(learning_rate=1e-2, lr_warmup_steps=3)
    trainer = create(settings(moved.base))
    broken = sample(2, hints=0, reward=1.0, explicit=True, logprobs=[math.nan] * 4)
    with pytest.raises(Exception, match="not finite"):
        await trainer.step([broken], recipe)
    assert (await trainer.step([sample(1)], recipe)).metrics["learning_rate"] == pytest.approx(1e-2 / 4)
    await trainer.close()


def test_moments_move_and_the_step_counter_stays_on_the_host() -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = adamw([weight], Recipe())
    weight.grad = torch.ones(3)
    optimizer.step()
    before = copy.deepcopy(optimizer.state_dict())
    move_state(optimizer, torch.device("meta"))
    held = optimizer.state[weight]
    assert {name: part.device.type for name, part in held.items()} == {
        "step": "cpu",
        "exp_avg": "meta",
        "exp_avg_sq": "meta",
    }
    assert before["state"][0]["exp_avg"].device.type == "cpu"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("lora", [True, False])
async def test_on_a_gpu_the_state_waits_on_the_host_and_learning_is_the_same(moved: Moved, lora: bool) -> None:
    changes: dict[str, Any] = {"device": "cuda", "lora": lora}
    here, away = (
        create(settings(moved.base, **changes)),
        create(settings(moved.base, offload_optimizer=True, **changes)),
    )
    for seed in range(3):
        found = [(await one.step([sample(seed), anchor(9)], Recipe())).metrics["loss/total"] for one in (here, away)]
        assert found[0] == pytest.approx(found[1], rel=1e-4)
        devices = {part.device.type for state in away._optimizer.state.values() for part in state.values()}
        assert devices == {"cpu"}
    await here.close()
    await away.close()


async def test_offloading_changes_nothing_on_a_cpu(moved: Moved, tmp_path: Path) -> None:
    plain, offloading = create(settings(moved.base)), create(settings(moved.base, offload_optimizer=True))
    for seed in range(3):
        found = [(await one.step([sample(seed)], Recipe())).metrics for one in (plain, offloading)]
        assert found[0]["weights/change"] == found[1]["weights/change"]
    checkpoint = await offloading.save(str(tmp_path / "3"))
    await plain.restore(checkpoint.path)
    found = [(await one.step([sample(9)], Recipe())).metrics for one in (plain, offloading)]
    assert found[0]["loss/total"] == found[1]["loss/total"]
    await plain.close()
    await offloading.close()
