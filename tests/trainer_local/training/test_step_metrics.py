"""The distance of a step, against plain Python on the weights before and after it."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.trainer import Recipe
from openclaw_rl.trainer_local.training import slices, step_metrics
from openclaw_rl.trainer_local.transformers_trainer import TransformersTrainer
from tests.trainer_local import plain
from tests.trainer_local.moved import Moved, move
from tests.trainer_local.tiny import VOCABULARY, anchor, sample

SAMPLES = [
    sample(1, response=5),
    sample(2, hints=0),  # without a term: it is not measured
    sample(3, prompt=9, response=2, hints=1),
    anchor(4),
]
PLAIN = [sample(number, prompt=20, response=6, hints=0, reward=1.0) for number in (1, 2, 3)]
BINARY: dict[str, Any] = {"distillation": "none", "rewards": "all", "epochs": 1, "learning_rate": 1e-2}


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Moved:
    return asyncio.run(move(tmp_path_factory.mktemp("moved")))


def distances(
    after: Path, moved: Moved, answers: list[tuple[Sample, int]]
) -> tuple[list[float], list[float], list[float]]:
    """KL from the policy before the step and from the base, and the entropy, of each of the first tokens of answers."""
    parent, base, entropy = [], [], []
    for one, tokens in answers:
        now, before, first = (
            plain.log_probs(folder, one.prompt_ids, one.response_ids)[:tokens]
            for folder in (after, moved.policy, moved.base)
        )
        parent += [plain.divergence(*pair) for pair in zip(now, before, strict=True)]
        base += [plain.divergence(*pair) for pair in zip(now, first, strict=True)]
        entropy += [-math.fsum(math.exp(value) * value for value in row) for row in now]
    return parent, base, entropy


def assert_measured(metrics: dict[str, float], values: tuple[list[float], ...]) -> None:
    for name, known in zip(("kl/parent", "kl/base", "entropy/mean"), values, strict=True):
        assert metrics[name] == pytest.approx(math.fsum(known) / len(known), rel=1e-3), name
    assert metrics["kl/parent"] > 1e-3 and metrics["kl/base"] > 1e-3


@pytest.mark.parametrize("tokens", [256, 6])
@pytest.mark.parametrize("sliced", [False, True], ids=["whole", "sliced"])
async def test_distance_to_parent_and_base_and_entropy_of_the_new_policy(
    moved: Moved, tmp_path: Path, tokens: int, sliced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_metrics, "AFTER_TOKENS", tokens)
    if sliced:
        monkeypatch.setattr(slices, "LOGIT_BYTES", 3 * 4 * VOCABULARY)
    after = await moved.after(SAMPLES, tmp_path / "after", epochs=4)
    metrics = await moved.metrics(SAMPLES, epochs=4)
    answers = [(SAMPLES[0], 5), (SAMPLES[2], min(2, tokens - 5)), (SAMPLES[3], max(0, min(4, tokens - 7)))]
    assert_measured(metrics, distances(after, moved, answers))


async def test_of_several_updates_the_first_gives_the_policy_before_the_step(moved: Moved, tmp_path: Path) -> None:
    samples = [sample(number, response=2 + number % 3) for number in range(1, 5)]
    after = await moved.after(samples, tmp_path / "after", minibatches=2)
    answers = [(one, len(one.response_ids)) for one in samples[::2]]
    assert_measured(await moved.metrics(samples, minibatches=2), distances(after, moved, answers))


async def test_dropout_is_no_part_of_the_policy_before_the_step(moved: Moved) -> None:
    trainer = await moved.trainer(lora_dropout=0.5)
    metrics = (await trainer.step(SAMPLES, Recipe(epochs=1, learning_rate=1e-9))).metrics
    await trainer.close()
    assert metrics["kl/parent"] < 1e-6
    assert metrics["kl/base"] > 1e-3


async def test_the_base_is_asked_in_every_tenth_step_and_where_the_loss_asks(moved: Moved, tmp_path: Path) -> None:
    trainer = await moved.trainer()
    trainer._step = 9
    reports = [await trainer.step(PLAIN, Recipe(**BINARY)) for _ in range(3)]
    assert ["kl/base" in report.metrics for report in reports] == [False, True, False]
    reports.append(await trainer.step(PLAIN, Recipe(**BINARY, kl_base=0.1)))
    assert "kl/base" in reports[-1].metrics
    await trainer.close()


class Tokens:
    """Counts the tokens that enter a trainer's model: with gradients, and all."""

    def __init__(self, trainer: TransformersTrainer) -> None:
        self.learned = self.all = 0
        trainer._weights.plain.get_input_embeddings().register_forward_hook(self._count)

    def _count(self, _: Any, inputs: tuple[torch.Tensor], __: Any) -> None:
        self.all += inputs[0].numel()
        self.learned += inputs[0].numel() * torch.is_grad_enabled()


@pytest.mark.parametrize("number", [1, 2])
async def test_a_step_puts_each_answer_through_the_model_once_more_than_it_learns(moved: Moved, number: int) -> None:
    trainer = await moved.trainer()
    trainer._step = number - 1
    tokens = Tokens(trainer)
    await trainer.step(PLAIN, Recipe(**BINARY))
    await trainer.close()
    batch = sum(len(one.prompt_ids) + len(one.response_ids) - 1 for one in PLAIN)
    assert (tokens.learned, tokens.all) == (batch, (3 if number == 1 else 2) * batch)


async def test_hinted_answers_need_no_pass_of_their_own_for_the_base(moved: Moved) -> None:
    """Before, the base went through the plain prompts again, and the policy before the step did so too."""
    samples = [sample(number, prompt=100, hints=2, response=6) for number in (1, 2)]
    trainer = await moved.trainer()
    tokens = Tokens(trainer)
    report = await trainer.step(samples, Recipe(epochs=1))
    await trainer.close()
    assert "kl/base" in report.metrics
    plain_tokens = sum(len(one.prompt_ids) + len(one.response_ids) - 1 for one in samples)
    assert tokens.learned == plain_tokens
    shared = tokens.all - 2 * plain_tokens  # the base, under the plain and the hinted prompts together
    assert shared < 1.6 * plain_tokens


async def test_answers_without_a_token_are_nothing_to_measure(moved: Moved) -> None:
    metrics = await moved.metrics([sample(1, response=0)])
    assert (metrics["kl/parent"], metrics["kl/base"], metrics["entropy/mean"], metrics["loss/total"]) == (0, 0, 0, 0)
