"""Settings of the Megatron-core trainer that ask for CUDA: answered on a CPU by the rig (`tests/rigs/megatron_cpu`)."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from openclaw_rl.shared.errors import TrainerError
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.shared.trainer import Recipe
from tests.contract.test_trainer import batch
from tests.rigs.megatron_cpu import shimmed
from tests.trainer_local.tiny import sample, settings, write_policy

pytest.importorskip("megatron.core", reason="test_megatron.py runs this where Megatron-core is")

from openclaw_rl.trainer_local.megatron import rank
from openclaw_rl.trainer_local.megatron.trainer import MegatronTrainer
from openclaw_rl.trainer_local.megatron.weights import RankWeights
from openclaw_rl.trainer_local.training import host_copies
from openclaw_rl.trainer_local.training.memory_limit import MemoryLimit
from tests.real.megatron_trainers import LAYOUTS, PROCESSES, create

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(1200),
    pytest.mark.usefixtures("trainers_closed"),
    pytest.mark.skipif(not shimmed(), reason="test_megatron.py runs this with the rig's answers for CUDA"),
]

RECIPE = Recipe(epochs=3, learning_rate=1e-2)
FAILS_AT_FIRST = """
import itertools, os, torch
calls = itertools.count()

def loss(tokens):
    if next(calls) < 3:
        raise torch.OutOfMemoryError("CUDA out of memory.")
    return -tokens.logits.float().log_softmax(-1).gather(-1, tokens.token_ids[:, None])[:, 0]
"""


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_policy(tmp_path_factory.mktemp("policy"), initializer_range=0.3)


async def after(trainer: MegatronTrainer, folder: Path, *batches: list[Sample], recipe: Recipe = RECIPE) -> Any:
    """The state that a trainer saves after steps; it is closed."""
    for one in batches:
        await trainer.step(one, recipe)
    checkpoint = await trainer.save(str(folder))
    await trainer.close()
    return torch.load(Path(checkpoint.path) / "trainer.pt", weights_only=True)


def counted_calls(rank_0: Any) -> list[list[int]]:
    """The calls of each layer in training mode that keep activations, and all of them, as they come."""
    calls = []
    for layer in rank_0.weights.model.gpt.decoder.layers:
        counts = [0, 0]

        def count(module: Any, *_: Any, counts: list[int] = counts) -> None:
            if module.training:
                counts[0] += torch.is_grad_enabled()
                counts[1] += 1

        layer.register_forward_hook(count)
        calls.append(counts)
    return calls


def apart(first: dict[str, Tensor], second: dict[str, Tensor]) -> float:
    """The largest difference; both have the same names."""
    assert first.keys() == second.keys() and first
    return max(float((first[name].float() - second[name].float()).abs().max()) for name in first)


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "data-parallel"])
@pytest.mark.parametrize("lora", [True, False], ids=["lora", "full"])
async def test_layers_that_are_computed_again_learn_the_same(
    policy: Path, layout: str, lora: bool, tmp_path: Path
) -> None:
    recipe = RECIPE.replace(epochs=1, beta1=0.0)
    turns = [sample(number, prompt=20 + number) for number in range(1, 4)]
    gradients = []
    for recomputed in (0, 1, 2):
        trainer = create(settings(policy, lora=lora, **LAYOUTS[layout]))
        rank_0 = trainer._leader.rank
        rank_0.limit = MemoryLimit(recomputed=recomputed, layers=2)
        calls = counted_calls(rank_0)
        state = await after(trainer, tmp_path / str(recomputed), batch(11), turns, recipe=recipe)
        for layer, (keeping, every) in enumerate(calls):
            assert every == (2 if layer < recomputed else 1) * keeping > 0, "the first layers run twice in a pass"
        gradients.append({str(index): held["exp_avg"] for index, held in state["optimizer"]["state"].items()})
    assert min(float(part.abs().max()) for part in gradients[0].values()) > 0, "every weight has a gradient"
    assert apart(gradients[0], gradients[1]) < 1e-5 and apart(gradients[0], gradients[2]) < 1e-5


async def test_more_layers_recompute_where_a_pass_does_not_fit(policy: Path, tmp_path: Path) -> None:
    """With a loss that raises torch's error three times."""
    hook = tmp_path / "loss.py"
    hook.write_text(FAILS_AT_FIRST)
    trainer = create(settings(policy))
    trainer._leader.rank.limit = MemoryLimit(layers=2)
    report = await trainer.step(batch(), RECIPE.replace(custom_loss=f"{hook}:loss"))
    limit, config = trainer._leader.rank.limit, trainer._leader.rank.weights.model.gpt.config
    assert (limit.recomputed, config.recompute_method, config.recompute_num_layers) == (2, "block", 2)
    assert report.metrics["micro_batch_tokens"] < RECIPE.micro_batch_tokens, "after the third"


async def test_dropout_is_the_same_when_a_layer_is_computed_again(policy: Path, tmp_path: Path) -> None:
    recipe = RECIPE.replace(epochs=2)
    plain, again = [
        await after(
            create(settings(policy, lora_dropout=0.4, recompute=recompute)),
            tmp_path / str(recompute),
            batch(),
            recipe=recipe,
        )
        for recompute in (False, True)
    ]
    assert apart(plain["weights"], again["weights"]) < 1e-5


@pytest.mark.parametrize("layout", list(LAYOUTS))
@pytest.mark.parametrize("lora", [True, False], ids=["lora", "full"])
async def test_the_distributed_optimizer_learns_the_same_and_resumes_exactly(
    policy: Path, layout: str, lora: bool, tmp_path: Path
) -> None:
    chosen = {"lora": lora, **LAYOUTS[layout]}
    plain = await after(create(settings(policy, **chosen)), tmp_path / "plain", batch(1), batch(11))
    shared = settings(policy, distributed_optimizer=True, **chosen)
    ours = await after(create(shared), tmp_path / "shared", batch(1), batch(11))
    assert apart(plain["weights"], ours["weights"]) < 2e-5

    saved = create(shared)
    await saved.step(batch(1), RECIPE)
    poisoned = sample(9, hints=0, reward=-1.0, explicit=True, logprobs=[float("nan")] * 4)
    with pytest.raises(TrainerError, match="not finite"):
        await saved.step([*batch(5), poisoned], RECIPE)
    checkpoint = await saved.save(str(tmp_path / "1"))
    await saved.close()
    resumed = create(shared)
    await resumed.restore(checkpoint.path)
    again = await after(resumed, tmp_path / "resumed", batch(11))
    assert apart(ours["weights"], again["weights"]) == 0

    for name in set(LAYOUTS) - {layout}:
        other = create(settings(policy, lora=lora, distributed_optimizer=True, **LAYOUTS[name]))
        message = r"processes with tensor_parallel = \d shard.*without distributed_optimizer"
        with pytest.raises(TrainerError, match=message):
            await other.restore(checkpoint.path)
        await other.close()
    plain_again = create(settings(policy, **chosen))
    with pytest.raises(TrainerError, match="was written with distributed_optimizer and cannot be resumed without"):
        await plain_again.restore(checkpoint.path)


async def test_the_distributed_optimizer_goes_back_to_the_base(policy: Path, tmp_path: Path) -> None:
    shared = settings(policy, lora=False, distributed_optimizer=True)
    trainer = create(shared)
    await trainer.step(batch(1), RECIPE)
    await trainer.restore(None)
    back = await after(trainer, tmp_path / "back", batch(1))
    fresh = await after(create(shared), tmp_path / "fresh", batch(1))
    assert apart(back["weights"], fresh["weights"]) == 0


@pytest.fixture
def half(monkeypatch: pytest.MonkeyPatch) -> None:
    """In bfloat16, as on CUDA."""

    def weights(chosen: Settings, group: Any, _: torch.dtype) -> RankWeights:
        return RankWeights(chosen, group, torch.bfloat16)

    monkeypatch.setattr(rank, "RankWeights", weights)


@pytest.mark.usefixtures("half")
@pytest.mark.skipif(PROCESSES > 1, reason="`half` holds in this process alone")
@pytest.mark.parametrize("lora", [True, False], ids=["lora", "full"])
async def test_in_bfloat16_it_learns_in_single_precision_and_streams_what_is_on_the_host(
    policy: Path, lora: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the optimizer's state on the host, and the weights in single precision, the same bits come out, in chunks
    that no weight is a multiple of.
    """
    monkeypatch.setattr(host_copies, "CHUNK", 100)
    turns = [sample(1, response=12), sample(2, response=12)]
    near, far = [
        await after(
            create(settings(policy, lora=lora, offload_optimizer=offload)), tmp_path / str(offload), turns, turns
        )
        for offload in (False, True)
    ]
    assert apart(near["weights"], far["weights"]) == 0
    for index, held in near["optimizer"]["state"].items():
        assert apart(held, far["optimizer"]["state"][index]) == 0
    assert all(part.dtype == torch.float32 for part in near["weights"].values())
    steps = create(settings(policy, lora=lora))
    losses = [(await steps.step(turns, RECIPE)).metrics["loss/distill"] for _ in range(6)]
    assert losses[-1] < 0.7 * losses[0]
    before = await steps.save(str(tmp_path / "before"))
    first = await steps.step(turns, RECIPE)
    await steps.restore(before.path)
    assert (await steps.step(turns, RECIPE)).metrics["weights/change"] == first.metrics["weights/change"]


@pytest.mark.usefixtures("half")
@pytest.mark.skipif(PROCESSES > 1, reason="`half` holds in this process alone")
@pytest.mark.parametrize("changes", [{}, {"offload_optimizer": True}, {"distributed_optimizer": True}], ids=str)
@pytest.mark.parametrize("lora", [True, False], ids=["lora", "full"])
async def test_steps_that_fail_one_after_the_other_are_undone_to_the_bit(
    policy: Path, lora: bool, changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After their update, so that all of the optimizer's state has changed."""
    chosen = settings(policy, lora=lora, **changes)
    expected = await after(create(chosen), tmp_path / "expected", batch(1), batch(11), batch(21))
    trainer = create(chosen)
    kind = type(trainer._leader.rank.optimizer)
    update = kind.update

    def fails(optimizer: Any) -> None:
        update(optimizer)
        raise ValueError("after the update")

    for number in (1, 11, 21):
        for _ in range(2):
            monkeypatch.setattr(kind, "update", fails)
            with pytest.raises(TrainerError, match="failed and was undone: after the update"):
                await trainer.step(batch(5), RECIPE)
            monkeypatch.setattr(kind, "update", update)
        await trainer.step(batch(number), RECIPE)
    found = await after(trainer, tmp_path / "found")
    assert apart(expected["weights"], found["weights"]) == 0
    for one, other in zip(states_of(expected["optimizer"]), states_of(found["optimizer"]), strict=True):
        assert apart(one, other) == 0


HALF_HOOK = """
import torch
from openclaw_rl.trainer_local.megatron import rank

def half(settings, group, dtype, make=rank.RankWeights):
    return make(settings, group, torch.bfloat16 if settings.learning.custom_loss else dtype)

if rank.RankWeights.__name__ != "half":
    rank.RankWeights = half

def loss(tokens):
    return tokens.logits.sum(-1)
"""
"""On every rank: trainers whose settings name it compute in bfloat16. Their recipes do not use the loss."""


@pytest.fixture(scope="module")
def rounded(policy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy whose weights are numbers of bfloat16: Megatron-core's masters begin at the rounded weights, ours at
    those of the folder.
    """
    folder = tmp_path_factory.mktemp("rounded")
    shutil.copytree(policy, folder, dirs_exist_ok=True)
    AutoModelForCausalLM.from_pretrained(policy, dtype=torch.bfloat16).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "alone"])
async def test_the_distributed_optimizer_in_bfloat16_keeps_weights_in_single_precision_and_resumes_exactly(
    rounded: Path, layout: str, tmp_path: Path
) -> None:
    hook = tmp_path / "half.py"
    hook.write_text(HALF_HOOK)
    recipe = RECIPE.replace(epsilon=1e-4)
    chosen: dict[str, Any] = {"lora": False, "custom_loss": f"{hook}:loss", **LAYOUTS[layout]}
    shared = settings(rounded, distributed_optimizer=True, **chosen)
    start = await after(create(settings(rounded, **chosen)), tmp_path / "start")
    plain = await after(create(settings(rounded, **chosen)), tmp_path / "plain", batch(1), batch(11), recipe=recipe)
    trainer = create(shared)
    await trainer.step(batch(1), recipe)
    checkpoint = await trainer.save(str(tmp_path / "1"))
    ours = await after(trainer, tmp_path / "ours", batch(11), recipe=recipe)
    for name, before in start["weights"].items():
        moved = float((plain["weights"][name] - before).abs().mean())
        differs = float((plain["weights"][name] - ours["weights"][name].float()).abs().mean())
        rounding = float(before.abs().mean()) / 256
        assert differs < 0.02 * moved + rounding, name

    masters = [shard["master"] for shards in ours["optimizer"]["shards"] for shard in shards]
    assert all(part.dtype == torch.float32 for part in masters)
    assert any(not torch.equal(part, part.bfloat16().float()) for part in masters), "more than bfloat16 holds"
    resumed = create(shared)
    await resumed.restore(checkpoint.path)
    again = await after(resumed, tmp_path / "again", batch(11), recipe=recipe)
    assert apart(ours["weights"], again["weights"]) == 0
    for mine, other in zip(ours["optimizer"]["shards"], again["optimizer"]["shards"], strict=True):
        for one, two in zip(mine, other, strict=True):
            assert all(torch.equal(value, two[name]) for name, value in one.items() if isinstance(value, Tensor))


def states_of(optimizer: dict[str, Any]) -> list[dict[str, Tensor]]:
    """The tensors of an optimizer, by weight or by shard of one process."""
    held = list(optimizer["state"].values()) if "state" in optimizer else optimizer["shards"][0]
    return [{name: value for name, value in one.items() if isinstance(value, Tensor)} for one in held]


def test_megatron_says_where_it_cannot_recompute_layers(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands in for a CPU without the rig's answers."""
    from openclaw_rl.shared.errors import ConfigError

    def fails() -> None:
        raise AssertionError("Torch not compiled with CUDA enabled")

    monkeypatch.setattr(rank, "_get_all_rng_states", fails)
    with pytest.raises(ConfigError, match="recompute = true: Megatron-core recomputes layers on CUDA alone"):
        create(settings(policy, recompute=True))
    asyncio.run(create(settings(policy)).close())
