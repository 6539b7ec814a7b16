"""The trainer contract on models that see (Qwen3-VL, and Qwen3.5 with its gated delta nets), with pictures in the
batches, and what the trainer does with them.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForImageTextToText

from openclaw_rl.shared.errors import TrainerError
from openclaw_rl.shared.objective import losses
from openclaw_rl.shared.objective.custom_loss import LossTokens
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.rendering.prompter import Prompter
from openclaw_rl.shared.trainer import Recipe
from openclaw_rl.trainer_local.backend import adapter_folder
from openclaw_rl.trainer_local.models.weights import is_vision
from openclaw_rl.trainer_local.transformers_trainer import TransformersTrainer, create
from tests.contract import test_trainer as contract
from tests.contract.test_trainer import Make, Subject
from tests.trainer_local.seeing import BLUE, KINDS, RED, Plain, Samples, write_seeing
from tests.trainer_local.tiny import anchor, settings

CONTRACT: dict[str, dict[str, Any]] = {"qwen3_vl": {"lora": False}, "qwen3_5": {"lora": True}}
"""How each kind is trained under the contract; text goes through all of it both ways in `tests.contract`."""

globals().update({name: test for name, test in vars(contract).items() if name.startswith("test_")})
distils = contract.distils


@pytest.fixture(scope="module", params=KINDS)
def policy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_seeing(tmp_path_factory.mktemp("seeing"), request.param)


@pytest.fixture(scope="module")
def samples(policy: Path) -> Samples:
    return Samples(policy)


def seeing_batch(samples: Samples, first: int = 1) -> list[Sample]:
    """A hinted turn that shows a picture, a praised one that shows two, a hinted one and an anchor that show none."""
    return [
        samples.seeing(first, RED, hints=["Shorter, please.", "In one word."]),
        samples.seeing(first + 1, BLUE, RED, reward=1.0, explicit=True, temperature=0.8),
        samples.seeing(first + 2, hints=["Shorter, please."]),
        anchor(first + 3),
    ]


@dataclass(frozen=True)
class SeeingSubject(Subject):
    """A subject whose batches show pictures."""

    samples: Samples | None = None

    def batch(self, first: int = 1) -> list[Sample]:
        assert self.samples is not None
        return seeing_batch(self.samples, first)


@pytest.fixture
def subject(samples: Samples) -> Subject:
    return SeeingSubject(recipe=contract.RECIPE.replace(epochs=3), many=6, samples=samples)


@pytest.fixture
async def make(policy: Path) -> AsyncIterator[Make]:
    """Makes trainers on the same settings, each as a fresh process would."""
    made: list[TransformersTrainer] = []
    way = CONTRACT[json.loads((policy / "config.json").read_text())["model_type"]]

    def build() -> TransformersTrainer:
        made.append(create(settings(policy, **way)))
        return made[-1]

    yield build
    for trainer in made:
        await trainer.close()


async def first_metrics(policy: Path, batch: list[Sample], recipe: Recipe | None = None, **changes: Any) -> Any:
    trainer = create(settings(policy, **changes))
    metrics = (await trainer.step(batch, recipe or Recipe(epochs=1))).metrics
    await trainer.close()
    return metrics


async def test_the_losses_are_those_worked_out_with_plain_transformers(policy: Path, samples: Samples) -> None:
    plain = Plain(policy)
    hinted = samples.seeing(1, BLUE, RED, hints=["Shorter, please.", "In one word."])
    with torch.no_grad():
        student = plain.log_probs(hinted.prompt_ids, hinted.response_ids, hinted.images)
        teachers = [
            plain.log_probs(prompt, hinted.response_ids, samples.images_under(hinted, prompt))
            for prompt in hinted.hinted_prompts
        ]
        praised = samples.seeing(2, RED, reward=1.0, explicit=True)
        sampled = losses.sampled_logprobs(
            plain.log_probs(praised.prompt_ids, praised.response_ids, praised.images),
            torch.tensor(praised.response_ids),
        )
    # Hints and thumbs share a denominator: the tokens of both.
    taught = len(hinted.response_ids) + len(praised.response_ids)
    expected = losses.reverse_kl(student, losses.ensemble_target(torch.stack(teachers))).sum() / taught
    metrics = await first_metrics(policy, [hinted, msgspec.structs.replace(praised, logprobs=sampled.tolist())])
    assert metrics["loss/distill"] == pytest.approx(float(expected), rel=1e-4)
    assert metrics["ratio/mean"] == pytest.approx(1.0, abs=1e-5)


async def test_every_method_takes_pictures(policy: Path, samples: Samples) -> None:
    trainer = create(settings(policy))
    for kind in ("token", "topk", "select"):
        recipe = Recipe(distillation=kind, epochs=2, hint_selection="overlap-token")
        metrics = (await trainer.step(seeing_batch(samples), recipe)).metrics
        assert metrics["samples/distill"] + metrics["samples/policy"] >= 2, kind
    await trainer.close()


def squared(tokens: LossTokens) -> Tensor:
    """A loss of the user's own."""
    return losses.log_softmax(tokens.logits).gather(-1, tokens.token_ids.unsqueeze(-1)).squeeze(-1).square()


async def test_a_loss_of_the_user_s_own_takes_pictures(policy: Path, samples: Samples) -> None:
    recipe = Recipe(epochs=1, custom_loss=f"{__name__}:squared")
    batch = seeing_batch(samples)
    assert (await first_metrics(policy, batch, recipe))["samples/custom"] == len(batch)


async def gradients(policy: Path, batch: list[Sample], **changes: Any) -> list[Tensor]:
    trainer = create(settings(policy, **changes))
    found: list[Tensor] = []
    optimizer = trainer._optimizer
    optimizer.register_step_pre_hook(
        lambda *_: found.extend(
            part.grad.clone() for group in optimizer.param_groups for part in group["params"] if part.grad is not None
        )
    )
    await trainer.step(batch, Recipe(epochs=2, teacher="live", kl_base=0.1))
    await trainer.close()
    return found


@pytest.mark.parametrize("way", [{"lora": True}, {"lora": False, "train_vision": True}], ids=str)
async def test_recomputing_gives_the_same_gradients(policy: Path, samples: Samples, way: dict[str, Any]) -> None:
    kept = await gradients(policy, seeing_batch(samples), **way)
    recomputed = await gradients(policy, seeing_batch(samples), recompute=True, **way)
    assert len(kept) == len(recomputed) > 0
    for one, other in zip(kept, recomputed, strict=True):
        assert torch.isfinite(one).all() and torch.equal(one, other)


async def test_the_optimizer_s_state_may_rest_on_the_host(policy: Path, samples: Samples) -> None:
    on, off = [await first_metrics(policy, seeing_batch(samples), offload_optimizer=one) for one in (True, False)]
    assert on["weights/change"] == off["weights/change"]


async def changed(policy: Path, folder: Path, batch: list[Sample], **changes: Any) -> set[str]:
    """The weights that a step changed, by name."""
    trainer = create(settings(policy, **changes))
    await trainer.step(batch, Recipe(epochs=2, learning_rate=1e-2))
    await trainer.export(str(folder))
    await trainer.close()
    before, after = (AutoModelForImageTextToText.from_pretrained(one).state_dict() for one in (policy, folder))
    return {name for name, weight in before.items() if not torch.equal(weight, after[name])}


async def test_the_vision_encoder_is_left_alone_unless_it_is_chosen(
    policy: Path, samples: Samples, tmp_path: Path
) -> None:
    batch = seeing_batch(samples)
    with_lora = await changed(policy, tmp_path / "lora", batch)
    assert with_lora and not any(is_vision(name) for name in with_lora)
    assert not any("in_proj_a" in name or "in_proj_b" in name for name in with_lora)
    chosen = await changed(policy, tmp_path / "chosen", batch, lora_targets="q_proj,v_proj,qkv")
    assert any("visual.blocks" in name for name in chosen)
    whole = await changed(policy, tmp_path / "whole", batch, lora=False)
    assert whole and not any(is_vision(name) for name in whole)
    everything = await changed(policy, tmp_path / "all", batch, lora=False, train_vision=True)
    assert any("visual.blocks" in name for name in everything) and any("merger" in name for name in everything)


async def test_an_exported_model_reads_pictures_as_before(policy: Path, samples: Samples, tmp_path: Path) -> None:
    trainer = create(settings(policy))
    await trainer.export(str(tmp_path / "whole"))
    await trainer.close()
    assert json.loads((tmp_path / "whole" / "preprocessor_config.json").read_text()) == json.loads(
        (policy / "preprocessor_config.json").read_text()
    )
    assert Prompter(tmp_path / "whole").vision == Prompter(policy).vision


async def test_a_picture_of_another_size_than_its_place_makes_no_step(policy: Path, samples: Samples) -> None:
    trainer = create(settings(policy))
    one, other = samples.seeing(1, RED), samples.seeing(1, BLUE)
    wrong = [msgspec.structs.replace(one.images[0], url=other.images[0].url)]
    with pytest.raises(TrainerError, match="sample_1"):
        await trainer.step([msgspec.structs.replace(one, images=wrong, reward=1.0, explicit=True)], Recipe())
    assert (await trainer.step(seeing_batch(samples), Recipe(epochs=1))).step == 1
    await trainer.close()


async def served(policy: Path, folder: Path, batch: list[Sample], **changes: Any) -> Path:
    """The folder that an engine is given after a step."""
    trainer = create(settings(policy, **changes))
    await trainer.step(batch, Recipe(epochs=1, learning_rate=1e-2))
    checkpoint = await trainer.save(str(folder))
    await trainer.close()
    return Path(checkpoint.served)


async def test_sglang_gets_the_adapter_under_its_own_names(policy: Path, samples: Samples, tmp_path: Path) -> None:
    folder = await served(policy, tmp_path / "1", seeing_batch(samples))
    weights = load_file(folder / "adapter_model.safetensors")
    if json.loads((policy / "config.json").read_text())["model_type"] == "qwen3_vl":  # whose names are the same
        assert adapter_folder(str(folder)) == str(folder)
        return
    split = load_file(Path(adapter_folder(str(folder))) / "adapter_model.safetensors")
    layer = "base_model.model.model.language_model.layers.0.linear_attn"
    down, up = (weights[f"{layer}.in_proj_qkv.{part}.weight"] for part in ("lora_A", "lora_B"))
    parts = [
        split[f"{layer}.in_proj_{one}.lora_B.weight"] @ split[f"{layer}.in_proj_{one}.lora_A.weight"] for one in "qkv"
    ]
    assert torch.allclose(torch.cat(parts), up @ down)
    assert [len(part) for part in parts] == [32, 32, 64]
    assert not any("in_proj_qkv." in name for name in split)
    config = json.loads((Path(adapter_folder(str(folder))) / "adapter_config.json").read_text())
    assert "in_proj_qkvz" in config["target_modules"] and "in_proj_z" not in config["target_modules"]


async def test_sglang_gets_whole_weights_where_it_takes_no_such_adapter(
    policy: Path, samples: Samples, tmp_path: Path
) -> None:
    changes: dict[str, Any] = {"lora_targets": "q_proj,v_proj,qkv", "backend": "megatron"}
    folder = await served(policy, tmp_path / "1", seeing_batch(samples), **changes)
    whole = AutoModelForImageTextToText.from_pretrained(folder).state_dict()
    assert not torch.equal(
        whole["model.visual.blocks.0.attn.qkv.weight"],
        AutoModelForImageTextToText.from_pretrained(policy).state_dict()["model.visual.blocks.0.attn.qkv.weight"],
    )
