"""Activations computed again in the backward pass: the same gradients, and it really happens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.trainer import Recipe
from openclaw_rl.trainer_local.training.recompute import recomputed_layers
from openclaw_rl.trainer_local.transformers_trainer import TransformersTrainer, create
from tests.trainer_local.moved import Moved, move
from tests.trainer_local.tiny import anchor, sample, settings

PREFIX = [2 + index % 40 for index in range(200)]


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Moved:
    return asyncio.run(move(tmp_path_factory.mktemp("moved")))


def batch() -> list[Sample]:
    return [sample(1, hints=2), sample(2, prompt=11, response=6, reward=1.0, explicit=True), anchor(3)]


def with_a_common_prefix() -> list[Sample]:
    """Long enough to be computed once for all."""
    return [
        sample(seed, hints=0, prompt_ids=[*PREFIX, seed], hinted_prompts=[[*PREFIX, seed, 7], [*PREFIX, seed, 9]])
        for seed in (4, 5, 6)
    ]


def gradients(trainer: TransformersTrainer) -> list[Tensor]:
    """Of every trained parameter, as the next optimizer steps see them."""
    found: list[Tensor] = []
    optimizer = trainer._optimizer
    optimizer.register_step_pre_hook(
        lambda *_: found.extend(
            part.grad.clone() for group in optimizer.param_groups for part in group["params"] if part.grad is not None
        )
    )
    return found


async def run(moved: Moved, samples: list[Sample], recipe: Recipe, **changes: Any) -> tuple[list[Tensor], float]:
    trainer = create(settings(moved.base, **changes))
    found = gradients(trainer)
    metrics = (await trainer.step(samples, recipe)).metrics
    await trainer.close()
    return found, metrics["loss/total"]


@pytest.mark.parametrize("changes", [{"lora": True}, {"lora": False}, {"lora_dropout": 0.3}], ids=str)
@pytest.mark.parametrize("make", [batch, with_a_common_prefix])
async def test_gradients_are_the_same_to_the_bit(
    moved: Moved, make: Callable[[], list[Sample]], changes: dict[str, Any]
) -> None:
    # A budget that leaves the common prefix in a pass of its own.
    recipe = Recipe(epochs=3, learning_rate=1e-2, teacher="live", kl_base=0.1, micro_batch_tokens=64)
    kept, loss = await run(moved, make(), recipe, **changes)
    recomputed, other = await run(moved, make(), recipe, recompute=True, **changes)
    assert loss == other
    assert len(kept) == len(recomputed) > 0
    assert all(torch.equal(first, second) for first, second in zip(kept, recomputed, strict=True))


async def test_a_common_prefix_is_computed_once_for_all_and_once_again(moved: Moved) -> None:
    counts = {}
    for recompute in (False, True):
        trainer = create(settings(moved.base, recompute=recompute))
        tokens: list[int] = []

        def count(_: Any, arguments: Any, kept: list[int] = tokens) -> None:
            if torch.is_grad_enabled():
                kept.append(arguments[0].shape[1])

        trainer._weights.plain.model.layers[1].mlp.register_forward_pre_hook(count)
        await trainer.step(with_a_common_prefix(), Recipe(epochs=1))
        await trainer.close()
        counts[recompute] = sum(tokens)
    assert counts[True] == 2 * counts[False]
    assert counts[False] < 2 * len(PREFIX)


async def test_each_layer_runs_again_in_the_backward_pass_and_only_there(moved: Moved) -> None:
    counts = []
    for recompute in (False, True):
        trainer = create(settings(moved.base, recompute=recompute))
        with_gradient: list[bool] = []
        trainer._weights.plain.model.layers[1].mlp.register_forward_pre_hook(
            lambda *_, seen=with_gradient: seen.append(torch.is_grad_enabled())
        )
        await trainer.step([sample(1)], Recipe(epochs=1))
        counts.append((sum(with_gradient), len(with_gradient) - sum(with_gradient)))
        await trainer.close()
    (trained, asked), (trained_again, asked_again) = counts
    assert (trained_again, asked_again) == (2 * trained, asked)


async def test_an_exported_model_is_an_ordinary_one(moved: Moved, tmp_path: Path) -> None:
    trainer = create(settings(moved.base, recompute=True))
    await trainer.step(batch(), Recipe())
    await trainer.export(str(tmp_path / "model"))
    await trainer.close()
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert not model.is_gradient_checkpointing


def test_a_model_without_such_layers_is_refused_in_words() -> None:
    class Plain(GPT2LMHeadModel):
        supports_gradient_checkpointing = False

    with pytest.raises(ConfigError, match="recompute"):
        recomputed_layers(Plain(GPT2Config(n_layer=1, n_head=1, n_embd=8, vocab_size=10, n_positions=8)))
