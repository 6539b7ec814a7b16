"""Megatron-core learns what transformers learns: the same logprobs, the same gradients, whatever is shared or packed.

Gradients are read from checkpoints: with beta1 = 0 the mean gradient that AdamW keeps is that of the last pass.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from msgspec.structs import replace
from safetensors.torch import load_file
from torch import Tensor

from openclaw_rl.shared.engine.protocol import Engine
from openclaw_rl.shared.errors import TrainerError
from openclaw_rl.shared.records import PromptImage, Sample
from openclaw_rl.shared.trainer import Recipe, Trainer
from openclaw_rl.trainer_local import transformers_trainer
from openclaw_rl.trainer_local.sglang.weight_transfer import Batches
from openclaw_rl.trainer_local.training import slices
from openclaw_rl.trainer_local.training.batching import row, row_of
from tests.trainer_local.tiny import VOCABULARY, anchor, sample, settings, write_policy

pytest.importorskip("megatron.core", reason="test_megatron.py runs this where Megatron-core is")

from openclaw_rl.trainer_local.megatron import forward, fused
from openclaw_rl.trainer_local.megatron.forward import budget, plan
from openclaw_rl.trainer_local.megatron.lora import Switch
from tests.real.megatron_trainers import LAYOUTS, PROCESSES, create

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200), pytest.mark.usefixtures("trainers_closed")]

TOLERANCE = 1e-5
RECIPE = Recipe(epochs=1, beta1=0.0, clip_grad=1e9, learning_rate=1e-3)

LOSS = '''
from pathlib import Path
import torch

def loss(tokens):
    """An advantage on every token, at the temperature of its sampling; what was computed is written down."""
    log_probs = torch.log_softmax(tokens.logits.float() / tokens.temperatures[:, None], dim=-1)
    for index in tokens.sample_index.unique().tolist():
        mine = tokens.sample_index == index
        name = "-".join(map(str, tokens.token_ids[mine].tolist()))
        torch.save(log_probs[mine].detach(), Path(FOLDER) / f"{name}.pt")
    sampled = log_probs.gather(-1, tokens.token_ids[:, None])[:, 0]
    return -tokens.advantages * sampled + (tokens.base_log_probs.exp() * (tokens.base_log_probs - log_probs)).sum(-1)
'''


@dataclass
class Found:
    """Results of one trainer on a batch: log-probabilities by the answer's tokens, gradients and weights by name."""

    log_probs: dict[str, Tensor] = field(default_factory=dict)
    gradients: dict[str, Tensor] = field(default_factory=dict)
    weights: dict[str, Tensor] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_policy(tmp_path_factory.mktemp("tied"), initializer_range=0.3)


@pytest.fixture(scope="module")
def untied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With output weights of its own, and a vocabulary that two ranks cannot share evenly."""
    folder = tmp_path_factory.mktemp("untied")
    return write_policy(folder, initializer_range=0.3, tie_word_embeddings=False, vocab_size=51)


@pytest.fixture(scope="module", params=list(LAYOUTS))
def layout(request: pytest.FixtureRequest) -> dict[str, Any]:
    return LAYOUTS[str(request.param)]


def conversation() -> list[Sample]:
    """A chat whose prompts each continue the last, but for a floating end; two that share nothing; an anchor. With
    advantages of all kinds, and weights.
    """
    whole = list(sample(50, prompt=90).prompt_ids)
    floating = sample(51, prompt=20).prompt_ids
    turns = [
        sample(number, prompt_ids=[*whole[: 12 * number], *floating[: number % 3]], response=3 + number % 2, hints=0)
        for number in range(1, 8)
    ]
    others = [sample(20, hints=0, temperature=0.7), sample(21, prompt=30, response=9, hints=0), anchor(22)]
    return [
        replace(one, advantage=(-1.0) ** number * (0.5 + number), weight=1.0 + number % 3)
        for number, one in enumerate([*turns, *others])
    ]


async def learn(trainer: Trainer, samples: list[Sample], recipe: Recipe, folder: Path, start: str = "") -> Found:
    """One step, from the checkpoint `start` if given; the trainer is closed."""
    if start:
        await trainer.restore(start)
    report = await trainer.step(samples, recipe)
    checkpoint = await trainer.save(str(folder / "checkpoint"))
    await trainer.close()
    state = torch.load(Path(checkpoint.path) / "trainer.pt", weights_only=True)
    kept = state["optimizer"]["state"]
    gradients = {name: kept[index]["exp_avg"] for index, name in enumerate(state["weights"]) if kept}
    logs = {file.stem: torch.load(file) for file in sorted(folder.glob("*.pt"))}
    return Found(logs, gradients, state["weights"], dict(report.metrics))


async def with_loss(trainer: Trainer, folder: Path, start: str = "", **changes: Any) -> Found:
    """Train `trainer` under the loss above and return the results."""
    folder.mkdir()
    hook = folder / "loss.py"
    hook.write_text(LOSS.replace("FOLDER", repr(str(folder))))
    recipe = RECIPE.replace(custom_loss=f"{hook}:loss", **changes)
    return await learn(trainer, conversation(), recipe, folder, start)


async def moved(policy: Path, folder: Path, **changes: Any) -> str:
    """A checkpoint of the transformers trainer some way from the base, so that every adapter has gradients."""
    trainer = transformers_trainer.create(settings(policy, **changes))
    for seed in (101, 102):
        await trainer.step([sample(seed, reward=1.0, explicit=True)], Recipe(learning_rate=1e-2, epochs=3))
    checkpoint = await trainer.save(str(folder))
    await trainer.close()
    return checkpoint.path


def apart(first: dict[str, Tensor], second: dict[str, Tensor]) -> float:
    """The largest difference; both have the same names."""
    assert first.keys() == second.keys() and first
    return max(float((first[name] - second[name]).abs().max()) for name in first)


def size(values: dict[str, Tensor]) -> float:
    """The largest number."""
    return max(float(part.abs().max()) for part in values.values())


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("lora", [True, False], ids=["lora", "full"])
async def test_logprobs_and_gradients_are_those_of_transformers(
    policy: Path, untied: Path, layout: dict[str, Any], lora: bool, tied: bool, tmp_path: Path
) -> None:
    model = policy if tied else untied
    start = await moved(model, tmp_path / "start", lora=lora)
    theirs = await with_loss(transformers_trainer.create(settings(model, lora=lora)), tmp_path / "transformers", start)
    ours = await with_loss(create(settings(model, lora=lora, **layout)), tmp_path / "megatron", start)
    assert len(ours.log_probs) == len(conversation())
    assert apart(ours.log_probs, theirs.log_probs) < TOLERANCE
    assert min(float(part.abs().max()) for part in theirs.gradients.values()) > 1e-3, "every weight has a gradient"
    assert apart(ours.gradients, theirs.gradients) < TOLERANCE * max(1.0, size(theirs.gradients))


@pytest.mark.parametrize("lora", [True, False], ids=["lora", "full"])
async def test_packed_and_merged_sequences_give_the_gradients_of_one_at_a_time(
    policy: Path, layout: dict[str, Any], lora: bool, tmp_path: Path
) -> None:
    start = await moved(policy, tmp_path / "start", lora=lora)
    ways = {
        "alone": {"merge": False, "tokens": 1},
        "packed": {"merge": False, "tokens": 200},
        "merged": {"merge": True, "tokens": 2048},
        "cut": {"merge": True, "tokens": 100},
    }
    found: dict[str, Found] = {}
    for name, way in ways.items():
        trainer = create(settings(policy, lora=lora, merge_prefixes=way["merge"], **layout))
        found[name] = await with_loss(trainer, tmp_path / name, start, micro_batch_tokens=way["tokens"])
    for name in ways:
        assert apart(found[name].log_probs, found["alone"].log_probs) < TOLERANCE, name
        assert apart(found[name].gradients, found["alone"].gradients) < TOLERANCE * size(found["alone"].gradients), name


def test_branches_have_room_next_to_a_trunk_of_nearly_a_micro_batch() -> None:
    trunk = list(range(900))
    rows = [row([*trunk[: 800 + 10 * turn], 5, turn], [1] * 20) for turn in range(8)]
    cpu = torch.device("cpu")
    tokens = max(one.length for one in rows) + 10
    assert len(plan(rows, budget(rows, tokens, cpu, room=tokens), merge=True)) > 1  # memory has no room: several trunks
    assert len(plan(rows, budget(rows, tokens, cpu, room=tokens + 1), merge=True)) == 1
    assert budget(rows, tokens, cpu, room=tokens + 1) <= 2 * tokens, "as much as is planned for a longer turn"


@pytest.mark.parametrize("merge", [True, False])
def test_rows_that_share_nothing_need_no_such_room(merge: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    budgets: list[int] = []

    def planned(_: Any, tokens: int, **__: Any) -> list[Any]:
        budgets.append(tokens)
        return []

    monkeypatch.setattr(forward, "plan", planned)
    model: Any = SimpleNamespace(frequencies=torch.zeros(1), switch=Switch())
    rows = [row([1] * 80, [2] * 10)]
    sizes = {"micro_batch_tokens": 100, "room": 1000}
    forward.run_packed(model, rows, lambda _: None, merge=merge, backward=False, **sizes)
    assert budgets == [rows[0].length + 100 if merge else 100] and model.switch.runs == 1


METHODS: dict[str, dict[str, Any]] = {
    "rehearse": {},
    "rehearse-stopping-early": {"early_stop": 0.5, "epochs": 6},
    "topk-of-the-teacher": {"distillation": "topk", "topk": 7},
    "topk-of-the-student": {"distillation": "topk", "topk": 7, "topk_from": "student"},
    "select": {"distillation": "select", "teacher": "live", "kl_base": 0.1, "aggregation": "sample"},
    "select-of-the-teacher": {"distillation": "select", "select_from": "teacher"},
    "select-of-both": {"distillation": "select", "select_from": "overlap", "hint_selection": "overlap-token"},
    "token": {"distillation": "token", "rewards": "all", "entropy": 0.05, "aggregation": "sample"},
    "binary": {"distillation": "none", "rewards": "all", "kl_base": 0.2, "entropy": 0.05},
    "live-teacher-hints-by-token": {"teacher": "live", "hint_selection": "overlap-token"},
    "moving-average-teacher": {"teacher": "ema", "ema_decay": 0.5, "teacher_temperature": 1.3},
    "sdpo": {
        **{"distillation": "topk", "topk": 7, "topk_from": "student", "teacher": "ema", "ema_decay": 0.5},
        **{"divergence": "jensen-shannon", "ratio_weighted": True, "rewards": "none"},
    },
    "follow-up": {"distillation": "token", "rewards": "none", "teacher": "live", "advantage_clip": 0.2},
    "nothing-left-to-learn": {"early_stop": 1e6, "rewards": "none"},
}


@pytest.mark.parametrize("name", list(METHODS))
async def test_every_method_learns_as_with_transformers(
    policy: Path, layout: dict[str, Any], name: str, tmp_path: Path
) -> None:
    lora = name not in ("select", "moving-average-teacher")  # other weights as a teacher, of both kinds
    start = await moved(policy, tmp_path / "start", lora=lora)
    recipe = Recipe(epochs=3, learning_rate=1e-3).replace(**METHODS[name])
    batches = [
        [
            sample(first),
            sample(first + 1, prompt=11, response=1, hints=1, reward=-1.0),
            sample(first + 2, hints=0, reward=1.0, explicit=True, temperature=0.8),
            sample(first + 3, origin="rehearsal", turn_id=None, prompt=4, response=7),
            anchor(first + 4),
        ]
        for first in (1, 11)
    ]
    metrics: list[list[dict[str, float]]] = []
    states: list[dict[str, Tensor]] = []
    for trainer in (
        transformers_trainer.create(settings(policy, lora=lora)),
        create(settings(policy, lora=lora, **layout)),
    ):
        await trainer.restore(start)
        metrics.append([dict((await trainer.step(batch, recipe)).metrics) for batch in batches])
        checkpoint = await trainer.save(str(tmp_path / str(len(states))))
        states.append(torch.load(Path(checkpoint.path) / "trainer.pt", weights_only=True)["weights"])
        await trainer.close()
    assert apart(*states) < 1e-4
    for theirs, ours in zip(*metrics, strict=True):
        assert theirs.keys() == ours.keys()
        compared = {key: value for key, value in theirs.items() if not key.startswith("seconds")}
        assert {key: ours[key] for key in compared} == pytest.approx(compared, rel=1e-3, abs=1e-4)


@pytest.mark.skipif(PROCESSES > 1, reason="the size of a slice is changed in this process alone")
async def test_slices_of_answers_give_the_step_on_whole_answers(
    policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = await moved(policy, tmp_path / "start")
    batch = [sample(1, response=30), sample(2, prompt=11, response=1, reward=-1.0), anchor(3)]
    found: list[Found] = []
    for most in (1000, 7):
        monkeypatch.setattr(slices, "LOGIT_BYTES", most * 4 * VOCABULARY)
        trainer, seen = create(settings(policy)), list[int]()
        model = trainer._leader.rank.weights.model
        logits = model.logits

        def watched(hidden: Tensor, logits: Any = logits, seen: list[int] = seen) -> Tensor:
            seen.append(len(hidden))
            return cast(Tensor, logits(hidden))

        monkeypatch.setattr(model, "logits", watched)
        found.append(await learn(trainer, batch, RECIPE, tmp_path / str(most), start))
        assert max(seen) <= most and (most == 7 or max(seen) >= 30)
    whole, sliced = found
    assert apart(sliced.gradients, whole.gradients) < TOLERANCE * max(1.0, size(whole.gradients))
    compared = {key: value for key, value in whole.metrics.items() if not key.startswith("seconds")}
    assert {key: sliced.metrics[key] for key in compared} == pytest.approx(compared, rel=1e-3, abs=1e-5)


async def test_dropout_draws_again_and_resumes_exactly(policy: Path, layout: dict[str, Any], tmp_path: Path) -> None:
    chosen = settings(policy, lora_dropout=0.3, **layout)
    recipe = Recipe(epochs=2, learning_rate=1e-2)
    first, plain = create(chosen), create(settings(policy, **layout))
    await first.step([sample(1), sample(2)], recipe)
    await plain.step([sample(1), sample(2)], recipe)
    saved, undropped = await first.save(str(tmp_path / "1")), await plain.save(str(tmp_path / "plain"))
    await plain.close()
    await first.step([sample(3), sample(4)], recipe)
    on = await first.save(str(tmp_path / "2"))
    await first.close()
    resumed = create(chosen)
    await resumed.restore(saved.path)
    await resumed.step([sample(3), sample(4)], recipe)
    again = await resumed.save(str(tmp_path / "3"))
    await resumed.close()
    held = [torch.load(Path(one.path) / "trainer.pt", weights_only=True) for one in (saved, undropped, on, again)]
    assert apart(held[2]["weights"], held[3]["weights"]) == 0
    assert torch.equal(held[2]["random_state"]["cpu"], held[3]["random_state"]["cpu"])
    assert apart(held[0]["weights"], held[1]["weights"]) > 1e-4


async def test_weights_are_handed_over_one_by_one_as_they_are_served(
    policy: Path, layout: dict[str, Any], tmp_path: Path
) -> None:
    trainer = create(settings(policy, lora=False, **layout))
    await trainer.step([sample(1)], Recipe(learning_rate=1e-2))
    checkpoint = await trainer.save(str(tmp_path / "1"))
    handed = {name: part.clone() for name, part in trainer.named_weights()}
    assert apart(handed, load_file(Path(checkpoint.served) / "model.safetensors")) == 0
    assert apart(handed, load_file(policy / "model.safetensors")) > 1e-4


class TakingEngine:
    """Stands for an engine that takes tensors, and keeps them; it loads no folder."""

    def __init__(self) -> None:
        self.taken: dict[str, Tensor] = {}

    async def load_tensors(self, version: int, batches: Batches, path: str) -> None:
        pulled = await asyncio.to_thread(lambda: [pair for batch in batches() for pair in batch])
        self.taken = {name: part.clone() for name, part in pulled}


async def test_a_publication_sends_the_checkpoint_whatever_is_in_memory(
    policy: Path, layout: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, engine = create(settings(policy, lora=False, **layout)), TakingEngine()
    await trainer.step([sample(1)], Recipe(learning_rate=1e-2))
    checkpoint = await trainer.save(str(tmp_path / "1"))
    served = load_file(Path(checkpoint.served) / "model.safetensors")
    with monkeypatch.context() as nothing_is_read:
        nothing_is_read.setattr("openclaw_rl.trainer_local.megatron.trainer.from_folder", None)
        await trainer.publish(checkpoint, 1, cast(Engine, engine), live=True)
    assert apart(engine.taken, served) == 0
    await trainer.step([sample(2)], Recipe(learning_rate=1e-2))
    await trainer.publish(checkpoint, 1, cast(Engine, engine), live=True)
    assert apart(engine.taken, served) == 0


async def test_a_prompt_with_an_image_is_refused_by_name(policy: Path, layout: dict[str, Any]) -> None:
    trainer = create(settings(policy, **layout))
    seen = replace(sample(1), images=[PromptImage("data:image/png;base64,", 0, 1)])
    with pytest.raises(TrainerError, match="takes text only"):
        await trainer.step([seen], Recipe())


@pytest.mark.skipif(PROCESSES > 1, reason="one process compiles")
def test_the_trial_of_fused_parts_compiles_megatron_cores_swiglu() -> None:
    """By the compiler for CPUs; its kernels for CUDA are others."""
    calls = torch._dynamo.utils.counters["stats"]["calls_captured"]
    assert fused._swiglu_trial(torch.device("cpu")) <= fused.TOLERANCE
    assert torch._dynamo.utils.counters["stats"]["calls_captured"] > calls, "it was compiled"


def test_without_merging_every_token_of_every_turn_is_computed() -> None:
    first = sample(1)
    answered = [*first.prompt_ids, *first.response_ids]
    second = replace(sample(2), prompt_ids=[*answered, 5, 6])
    turns = [row_of(first), row_of(second)]
    planned = {merge: sum(one.tokens for one in plan(turns, 10_000, merge=merge)) for merge in (True, False)}
    assert planned == {True: turns[1].length - 1, False: turns[0].length + turns[1].length - 2}


async def test_an_adapter_of_another_scale_is_not_restored(
    policy: Path, layout: dict[str, Any], tmp_path: Path
) -> None:
    checkpoint = await create(settings(policy, lora_alpha=32.0, **layout)).save(str(tmp_path / "1"))
    with pytest.raises(TrainerError, match=r"was trained with lora_alpha = 32, not 16: set it as it was"):
        await create(settings(policy, lora_alpha=16.0, **layout)).restore(checkpoint.path)
