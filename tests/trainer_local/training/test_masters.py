"""A model that computes in bfloat16, and masters in single precision that the optimizer changes."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from bench.lora_precision import PrecisionCount
from bench.trainer_watch import StepWatch, relative_difference
from openclaw_rl.shared.errors import TrainerError
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.trainer import Recipe
from openclaw_rl.trainer_local.models import weights
from openclaw_rl.trainer_local.training.batching import row
from openclaw_rl.trainer_local.training.masters import Masters
from openclaw_rl.trainer_local.training.recompute import recomputing
from openclaw_rl.trainer_local.transformers_trainer import TransformersTrainer, create
from tests.trainer_local.moved import Moved, move
from tests.trainer_local.tiny import anchor, sample, settings

RECIPE = Recipe(epochs=1, learning_rate=1e-5)
BATCH = [sample(1, hints=2), sample(2, prompt=11, response=6, reward=1.0, explicit=True), anchor(3)]
BOTH = pytest.mark.parametrize("lora", [True, False], ids=["lora", "all weights"])


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Moved:
    return asyncio.run(move(tmp_path_factory.mktemp("moved")))


def half(moved: Moved, **changes: Any) -> TransformersTrainer:
    return TransformersTrainer(settings(moved.base, **changes), torch.bfloat16)


async def start(moved: Moved, folder: Path, *, lora: bool) -> str:
    """A checkpoint of a trainer in single precision that has left its base."""
    if lora:
        return moved.checkpoint
    trainer = create(settings(moved.base, lora=False))
    await trainer.step([sample(101)], Recipe(learning_rate=1e-3))
    checkpoint = await trainer.save(str(folder / "start"))
    await trainer.close()
    return checkpoint.path


def in_model(trainer: TransformersTrainer) -> dict[str, Tensor]:
    """The parameters that the model computes with."""
    return {
        name: part.detach().clone() for name, part in trainer._weights.model.named_parameters() if part.requires_grad
    }


def moved_share(before: dict[str, Tensor], after: dict[str, Tensor]) -> float:
    """The share of numbers that are others."""
    changed = sum(int((before[name] != after[name]).sum()) for name in before)
    return changed / sum(part.numel() for part in before.values())


def state(folder: str) -> dict[str, Any]:
    found: dict[str, Any] = torch.load(Path(folder) / "trainer.pt", weights_only=True)
    return found


def same(one: Any, other: Any) -> bool:
    """True if nested values are equal to the bit."""
    if isinstance(one, Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@BOTH
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=CUDA)])
async def test_ten_small_steps_move_the_masters_though_one_is_rounded_away(
    moved: Moved, tmp_path: Path, lora: bool, device: str
) -> None:
    trainer = half(moved, lora=lora, device=device)
    await trainer.restore(await start(moved, tmp_path, lora=lora))
    masters, rounded = trainer._weights.snapshot(), in_model(trainer)
    assert {part.dtype for part in rounded.values()} == {torch.bfloat16}
    await trainer.step(BATCH, RECIPE)
    assert moved_share(rounded, in_model(trainer)) < 0.2, "a step is smaller than the distance of bfloat16 numbers"
    assert moved_share(masters, trainer._weights.snapshot()) > 0.9
    for _ in range(9):
        await trainer.step(BATCH, RECIPE)
    after = trainer._weights.snapshot()
    changes = torch.cat([(after[name] - masters[name]).abs().flatten() for name in after])
    assert 3e-5 < float(changes.median()) <= 1.01e-4, "ten steps of about 1e-5"
    served = Path((await trainer.save(str(tmp_path / "10"))).served)
    written = load_file(served / ("adapter_model.safetensors" if lora else "model.safetensors"))
    named = {name.replace(".default.", "."): part.cpu() for name, part in after.items()}
    assert same({name: written[name] for name in named}, named), "engines get the masters"
    await trainer.close()


async def first_gradients(trainer: TransformersTrainer, checkpoint: str) -> tuple[list[Tensor], float]:
    """Gradients and loss of a step from `checkpoint`; the trainer is closed."""
    await trainer.restore(checkpoint)
    watch = StepWatch()
    with watch.of(trainer):
        metrics = (await trainer.step(BATCH, RECIPE.replace(clip_grad=1e9))).metrics
    await trainer.close()
    return watch.gradients, metrics["loss/total"]


@BOTH
async def test_losses_and_gradients_are_nearly_those_of_single_precision(
    moved: Moved, tmp_path: Path, lora: bool
) -> None:
    checkpoint = await start(moved, tmp_path, lora=lora)
    gradients, loss = await first_gradients(half(moved, lora=lora), checkpoint)
    exact, exact_loss = await first_gradients(create(settings(moved.base, lora=lora)), checkpoint)
    assert {part.dtype for part in gradients} == {torch.float32}
    assert 0 < relative_difference(gradients, exact) < 0.1
    assert loss == pytest.approx(exact_loss, rel=0.02)


async def test_adapters_in_single_precision_would_be_no_nearer(moved: Moved, monkeypatch: pytest.MonkeyPatch) -> None:
    """The base is rounded either way."""
    gradients, _ = await first_gradients(half(moved), moved.checkpoint)
    exact, _ = await first_gradients(create(settings(moved.base)), moved.checkpoint)
    monkeypatch.setattr(weights, "_round_adapters", lambda *_: {})
    unrounded, _ = await first_gradients(half(moved), moved.checkpoint)
    assert relative_difference(gradients, exact) < 1.2 * relative_difference(unrounded, exact)
    assert relative_difference(gradients, unrounded) > 0


@BOTH
@pytest.mark.parametrize("changes", [{}, {"recompute": True, "lora_dropout": 0.2}], ids=str)
async def test_a_restored_trainer_continues_to_the_bit(
    moved: Moved, tmp_path: Path, lora: bool, changes: dict[str, Any]
) -> None:
    recipe = RECIPE.replace(epochs=2, teacher="ema")
    first, second = half(moved, lora=lora, **changes), half(moved, lora=lora, **changes)
    await first.restore(await start(moved, tmp_path, lora=lora))
    await first.step(BATCH, recipe)
    await second.restore((await first.save(str(tmp_path / "1"))).path)
    for number, trainer in enumerate((first, second)):
        await trainer.step([sample(5), anchor(6)], recipe)
        await trainer.save(str(tmp_path / f"after-{number}"))
        await trainer.close()
    one, other = (state(str(tmp_path / f"after-{number}")) for number in (0, 1))
    assert same(one, other)
    assert {part.dtype for part in (*one["weights"].values(), *one["average"].values())} == {torch.float32}
    assert all(moment.dtype == torch.float32 for kept in one["optimizer"]["state"].values() for moment in kept.values())


@BOTH
async def test_a_failed_step_is_undone_to_the_bit(moved: Moved, tmp_path: Path, lora: bool) -> None:
    trainer = half(moved, lora=lora)
    await trainer.step(BATCH, RECIPE)
    before, rounded = (await trainer.save(str(tmp_path / "1"))).path, in_model(trainer)
    broken: Sample = sample(2, hints=0, reward=1.0, explicit=True, logprobs=[math.nan] * 4)
    with pytest.raises(TrainerError, match="not finite"):
        await trainer.step([*BATCH, broken], RECIPE.replace(minibatches=2))
    assert same(state(before), state((await trainer.save(str(tmp_path / "2"))).path))
    assert same(rounded, in_model(trainer))
    await trainer.close()


@BOTH
async def test_checkpoints_of_both_precisions_are_the_same_kind(moved: Moved, tmp_path: Path, lora: bool) -> None:
    """Checkpoints from before there were masters hold adapters in single precision."""
    old = await start(moved, tmp_path, lora=lora)
    trainer, single = half(moved, lora=lora), create(settings(moved.base, lora=lora))
    await trainer.restore(old)
    await single.restore((await trainer.save(str(tmp_path / "new"))).path)
    again = (await single.save(str(tmp_path / "again"))).path
    assert same(state(old), state(again))
    await trainer.close()
    await single.close()


@BOTH
@pytest.mark.parametrize("recompute", [True, False])
async def test_a_pass_multiplies_nothing_in_single_precision_up_to_the_head(
    moved: Moved, lora: bool, recompute: bool
) -> None:
    trainer = half(moved, lora=lora, recompute=recompute)
    ids = torch.tensor([sample(1, prompt=30).prompt_ids])
    with PrecisionCount() as count, recomputing(trainer._recomputed_for([row(range(2, 9), [3])])):
        trainer._weights.plain.model(input_ids=ids, use_cache=False).last_hidden_state.sum().backward()
    await trainer.close()
    assert set(count.operations) == {torch.bfloat16}


@BOTH
async def test_the_first_masters_are_the_folders_own_numbers(moved: Moved, lora: bool) -> None:
    trainer, single = half(moved, lora=lora), create(settings(moved.base, lora=lora))
    masters, exact = trainer._weights.snapshot(), single._weights.snapshot()
    await trainer.close()
    await single.close()
    assert masters.keys() == exact.keys()
    if lora:  # PEFT draws the first adapter in the precision of its base
        exact = {name: part.bfloat16().float() for name, part in exact.items()}
    assert same(masters, exact)


def test_gradients_of_several_passes_are_summed_in_single_precision() -> None:
    parameter = torch.nn.Parameter(torch.zeros(3, dtype=torch.bfloat16))
    single = torch.nn.Parameter(torch.zeros(3))
    masters = Masters({"half": parameter, "single": single}, {"half": torch.full((3,), 1.0 + 2**-12)})
    assert masters.weights["single"] is single
    assert torch.equal(parameter, torch.ones(3, dtype=torch.bfloat16))
    for factor in (1.0, 2**-10):  # their sum is no bfloat16 number
        (parameter * factor).sum().backward()
    assert parameter.grad is None
    assert torch.equal(masters.weights["half"].grad, torch.full((3,), 1.0 + 2**-10))
    with masters.with_values({"half": torch.full((3,), 3.0), "single": torch.ones(3)}):
        assert torch.equal(parameter, torch.full((3,), 3.0, dtype=torch.bfloat16))
    with masters.in_model():
        assert torch.equal(parameter, torch.full((3,), 1.0 + 2**-12))
    (parameter * 4).sum().backward()
    assert torch.equal(masters.weights["half"].grad, torch.full((3,), 5.0 + 2**-10))


async def test_an_adapter_is_merged_into_the_base_in_single_precision_and_rounded_once(
    moved: Moved, tmp_path: Path
) -> None:
    trainer = half(moved, lora=True)
    await trainer.restore(await start(moved, tmp_path, lora=True))
    base = {name: part.float() for name, part in trainer._weights.plain.state_dict().items() if "base_layer" in name}
    masters = trainer._weights.snapshot()
    settings = trainer._settings.learning
    await trainer.export(str(tmp_path / "merged"))
    await trainer.close()
    written = load_file(tmp_path / "merged" / "model.safetensors")
    assert base and {part.dtype for part in written.values()} == {torch.bfloat16}
    for name, weight in base.items():
        plain = name.replace(".base_layer", "")
        down, up = (
            masters[f"base_model.model.{plain.removesuffix('.weight')}.lora_{side}.default.weight"] for side in "AB"
        )
        wanted = weight + settings.lora_alpha / settings.lora_rank * (up @ down)
        assert torch.equal(written[plain], wanted.bfloat16()), plain
