"""A pass divided into minibatches makes an update on each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.trainer import Recipe, StepReport
from openclaw_rl.trainer_local.training import step as step_module
from openclaw_rl.trainer_local.transformers_trainer import TransformersTrainer
from tests.trainer_local.tiny import anchor, sample, settings, write_policy

HINTED = [sample(number, response=3 + number % 4, hints=1) for number in range(4)]
ANCHORS = [anchor(number + 10) for number in range(4)]
UNUSED = sample(30, hints=0)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_policy(tmp_path_factory.mktemp("policy"))


async def steps(
    policy: Path, *batches: list[Sample], moved: bool = False, **changes: Any
) -> tuple[StepReport, dict[str, torch.Tensor]]:
    """The last report of a step on each batch, and the weights after it. `moved`: the policy has left its base."""
    trainer = TransformersTrainer(settings(policy))
    try:
        if moved:
            await trainer.step(HINTED, Recipe(learning_rate=1e-2))
        for batch in batches:
            report = await trainer.step(batch, Recipe(**({"epochs": 1, "learning_rate": 1e-2} | changes)))
        return report, {name: part.detach().clone() for name, part in trainer._weights.masters.items()}
    finally:
        await trainer.close()


async def test_two_minibatches_train_as_two_steps_on_half_of_each_kind(policy: Path) -> None:
    report, divided = await steps(policy, [*HINTED, *ANCHORS], minibatches=2)
    _, expected = await steps(policy, [*HINTED[::2], *ANCHORS[::2]], [*HINTED[1::2], *ANCHORS[1::2]])
    for name, part in divided.items():
        torch.testing.assert_close(part, expected[name], rtol=1e-5, atol=1e-7)
    assert (report.metrics["epochs"], report.metrics["updates"]) == (1, 2)


async def test_the_losses_of_a_pass_are_those_of_the_whole_batch(policy: Path) -> None:
    batch = [*HINTED, *ANCHORS, sample(20, hints=0, reward=-1.0, explicit=True, response=9)]
    still: dict[str, Any] = {"learning_rate": 1e-12, "rewards": "all"}
    whole, _ = await steps(policy, batch, moved=True, **still)
    divided, _ = await steps(policy, batch, moved=True, minibatches=3, **still)
    assert all(abs(whole.metrics[f"loss/{term}"]) > 1e-5 for term in ("distill", "anchor", "binary"))
    for name, value in whole.metrics.items():
        if name.startswith(("loss/", "ratio/", "advantage/", "samples/")):
            assert divided.metrics[name] == pytest.approx(value, rel=1e-4, abs=1e-7), name


async def test_no_minibatch_is_empty(policy: Path) -> None:
    report, _ = await steps(policy, [*HINTED[:2], UNUSED], minibatches=5, epochs=2)
    assert report.metrics["updates"] == 4, "two samples teach"
    alone, _ = await steps(policy, [UNUSED], minibatches=5)
    assert alone.metrics["updates"] == 0


async def test_a_taught_batch_ends_before_its_last_update(policy: Path) -> None:
    recipe: dict[str, Any] = {"epochs": 50, "early_stop": 0.5, "minibatches": 2, "learning_rate": 2e-2}
    report, _ = await steps(policy, HINTED, **recipe)
    updates = report.metrics["updates"]
    assert 2 < updates < 100
    assert updates % 2 == 1 and report.metrics["epochs"] == updates / 2


@pytest.mark.parametrize("minibatches", [1, 4])
async def test_without_time_a_step_makes_one_update(policy: Path, minibatches: int) -> None:
    report, _ = await steps(policy, HINTED, minibatches=minibatches, epochs=5, step_seconds=1e-9)
    assert (report.metrics["updates"], report.metrics["epochs"]) == (1, 1 / minibatches)
    whole, _ = await steps(policy, HINTED, minibatches=minibatches, epochs=1)
    assert 0.2 < report.metrics["loss/distill"] / whole.metrics["loss/distill"] < 5, "of the part that was trained"


async def test_time_ends_a_pass_between_its_updates(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that a minibatch moves on by a second."""
    seconds = [0.0]
    monkeypatch.setattr(step_module.time, "perf_counter", lambda: seconds[0])
    backward = step_module._Minibatch.backward

    def slow(*arguments: Any, **named: Any) -> None:
        seconds[0] += 1.0
        backward(*arguments, **named)

    monkeypatch.setattr(step_module._Minibatch, "backward", slow)
    report, _ = await steps(policy, HINTED, minibatches=4, epochs=5, step_seconds=6.5)
    assert (report.metrics["updates"], report.metrics["epochs"]) == (6, 1.5)
