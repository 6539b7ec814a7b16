"""What every trainer promises (`shared.trainer.Trainer`), whatever it runs on. A backend passes this suite or is not
a backend.
"""

from __future__ import annotations

import asyncio
import math
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from shared.errors import TrainerError
from shared.records import Sample
from shared.registry import backend, resolve
from shared.trainer import Recipe, Trainer
from tests.trainer_local.tiny import anchor, sample, settings, write_policy

BACKENDS = {
    "embedded-lora": ("embedded", {"lora": True}),
    "embedded-lora-dropout": ("embedded", {"lora": True, "lora_dropout": 0.2}),
    "embedded-full": ("embedded", {"lora": False}),
}
RECIPE = Recipe(learning_rate=1e-2)

Make = Callable[[], Trainer]


@pytest.fixture(scope="session")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_policy(tmp_path_factory.mktemp("policy"))


@pytest.fixture(params=list(BACKENDS))
async def make(request: pytest.FixtureRequest, policy: Path) -> AsyncIterator[Make]:
    """Makes trainers on the same settings, each as a fresh process would."""
    name, changes = BACKENDS[request.param]
    made: list[Trainer] = []

    def build() -> Trainer:
        made.append(resolve(backend(name).trainer)(settings(policy, **changes)))
        return made[-1]

    yield build
    for trainer in made:
        await trainer.close()


def batch(first: int = 1) -> list[Sample]:
    """Two hinted turns, one with explicit praise, one rehearsal, one anchor."""
    return [
        sample(first),
        sample(first + 1, prompt=11, response=1, hints=1),
        sample(first + 2, hints=0, reward=1.0, explicit=True, temperature=0.8),
        sample(first + 3, origin="rehearsal", turn_id=None, prompt=4, response=7),
        anchor(first + 4),
    ]


async def weights(trainer: Trainer, folder: Path) -> dict[str, torch.Tensor]:
    """The policy's full weights, as another tool would load them."""
    await trainer.export(str(folder))
    found = dict(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict())
    shutil.rmtree(folder)
    return found


def equal(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


class RecordingEngine:
    """Stands for an engine that only notes what it is told to load."""

    def __init__(self) -> None:
        self.loads: list[tuple[int, str, bool]] = []

    async def load(self, version: int, path: str, *, live: bool) -> None:
        self.loads.append((version, path, live))


async def test_a_step_reports_finite_numbers_and_what_it_learned_from(make: Make) -> None:
    samples = batch()
    report = await make().step(samples, RECIPE)
    assert report.step == 1
    assert list(report.sample_ids) == [one.sample_id for one in samples]
    assert {"loss/total", "gradient/norm", "learning_rate", "tokens", "seconds", "kl/parent"} <= report.metrics.keys()
    assert all(math.isfinite(value) for value in report.metrics.values())
    assert report.metrics["kl/parent"] > 0


async def test_without_an_importance_ratio_the_hint_teaches_and_the_reward_does_not(make: Make, tmp_path: Path) -> None:
    rewarded = sample(1, reward=-1.0, explicit=True, no_ratio="sampled with top_p 0.9")
    report = await (with_reward := make()).step([rewarded], RECIPE)
    assert (report.metrics["samples/distill"], report.metrics["samples/binary"]) == (1, 0)
    await (without := make()).step([sample(1)], RECIPE)
    assert equal(await weights(with_reward, tmp_path / "a"), await weights(without, tmp_path / "b"))
    thumbs = [sample(1, hints=0, reward=-1.0, explicit=True), sample(2, hints=0, reward=1.0, explicit=True)]
    with_ratio = await make().step([thumbs[0], msgspec.structs.replace(thumbs[1], no_ratio="greedy")], RECIPE)
    assert with_ratio.metrics["samples/binary"] == 1


async def test_a_hint_stands_for_the_thumb_beside_it_unless_every_reward_trains(make: Make) -> None:
    both = sample(1, reward=-1.0, explicit=True)
    told = await make().step([both], RECIPE)
    assert (told.metrics["samples/distill"], told.metrics["samples/binary"]) == (1, 0)
    every = await make().step([both], msgspec.structs.replace(RECIPE, rewards="all"))
    assert (every.metrics["samples/distill"], every.metrics["samples/binary"]) == (1, 1)


async def test_steps_bring_the_policy_closer_to_the_hinted_teacher(make: Make) -> None:
    trainer = make()
    samples = [sample(1, response=12), sample(2, response=12)]
    losses = [(await trainer.step(samples, RECIPE)).metrics["loss/distill"] for _ in range(8)]
    assert losses[-1] < 0.6 * losses[0]


async def test_resuming_from_a_checkpoint_is_exact_to_the_bit(make: Make, tmp_path: Path) -> None:
    uninterrupted, saved = make(), make()
    await uninterrupted.step(batch(1), RECIPE)
    await uninterrupted.step(batch(11), RECIPE)
    await saved.step(batch(1), RECIPE)
    checkpoint = await saved.save(str(tmp_path / "1"))

    resumed = make()
    await resumed.restore(checkpoint.path)
    report = await resumed.step(batch(11), RECIPE)

    assert (checkpoint.step, report.step) == (1, 2)
    assert equal(await weights(resumed, tmp_path / "a"), await weights(uninterrupted, tmp_path / "b"))
    assert not equal(await weights(saved, tmp_path / "a"), await weights(resumed, tmp_path / "b"))


async def test_restoring_nothing_is_the_untouched_base(make: Make, tmp_path: Path) -> None:
    trainer, fresh = make(), make()
    await trainer.step(batch(), RECIPE)
    await trainer.restore(None)
    assert equal(await weights(trainer, tmp_path / "a"), await weights(fresh, tmp_path / "b"))
    first, second = await trainer.step(batch(3), RECIPE), await fresh.step(batch(3), RECIPE)
    assert first.step == second.step == 1
    assert first.metrics["loss/total"] == second.metrics["loss/total"]


async def test_a_step_that_is_not_finite_changes_nothing(make: Make, tmp_path: Path) -> None:
    trainer, untroubled = make(), make()
    poisoned = sample(9, hints=0, reward=-1.0, explicit=True, logprobs=[float("nan")] * 4)
    await trainer.step(batch(1), RECIPE)
    before = await weights(trainer, tmp_path / "a")
    with pytest.raises(TrainerError, match="not finite"):
        await trainer.step([*batch(5), poisoned], RECIPE)
    assert equal(before, await weights(trainer, tmp_path / "a"))

    await untroubled.step(batch(1), RECIPE)
    reports = [await one.step(batch(21), RECIPE) for one in (trainer, untroubled)]
    assert reports[0].step == reports[1].step == 2
    assert equal(await weights(trainer, tmp_path / "a"), await weights(untroubled, tmp_path / "b"))


async def test_a_rate_at_which_it_explodes_is_undone_too(make: Make, tmp_path: Path) -> None:
    trainer = make()
    before = await weights(trainer, tmp_path / "a")
    with pytest.raises(TrainerError):
        await trainer.step(batch(), Recipe(learning_rate=1e30))
    assert equal(before, await weights(trainer, tmp_path / "a"))


async def test_nothing_to_learn_from_changes_nothing(make: Make, tmp_path: Path) -> None:
    trainer = make()
    before = await weights(trainer, tmp_path / "a")
    report = await trainer.step([sample(1, hints=0, reward=-1.0)], RECIPE)
    assert report.metrics["loss/total"] == 0.0
    assert equal(before, await weights(trainer, tmp_path / "a"))


async def test_a_judges_score_trains_only_where_the_method_says_so(make: Make) -> None:
    judged = [sample(1, hints=0, reward=-1.0)]
    assert (await make().step(judged, RECIPE)).metrics["samples/binary"] == 0
    assert (await make().step(judged, Recipe(distillation="none", rewards="all"))).metrics["samples/binary"] == 1


async def test_praise_makes_an_answer_likelier_and_blame_less_likely(make: Make) -> None:
    def ratios(trainer: Trainer, reward: float) -> Any:
        return trainer.step([sample(1, hints=0, reward=reward, explicit=True)], Recipe(epochs=6, learning_rate=3e-3))

    praised, blamed = make(), make()
    first = (await ratios(praised, 1.0)).metrics["ratio/mean"]
    second = (await ratios(blamed, -1.0)).metrics["ratio/mean"]
    assert first > second


async def test_publishing_hands_the_served_folder_to_the_engine(make: Make, tmp_path: Path) -> None:
    trainer, engine = make(), RecordingEngine()
    await trainer.step(batch(), RECIPE)
    checkpoint = await trainer.save(str(tmp_path / "1"))
    await trainer.publish(checkpoint, 1, engine, live=True)  # type: ignore[arg-type]
    await trainer.publish(checkpoint, 1, engine, live=False)  # type: ignore[arg-type]
    assert engine.loads == [(1, checkpoint.served, True), (1, checkpoint.served, False)]


async def test_other_tools_load_what_is_served_and_what_is_exported(make: Make, policy: Path, tmp_path: Path) -> None:
    trainer = make()
    await trainer.step(batch(), RECIPE)
    checkpoint = await trainer.save(str(tmp_path / "1"))
    await trainer.export(str(tmp_path / "exported"))
    served = Path(checkpoint.served)
    if (served / "adapter_config.json").exists():
        model: Any = PeftModel.from_pretrained(
            AutoModelForCausalLM.from_pretrained(policy, dtype=torch.float32), served
        )
    else:
        model = AutoModelForCausalLM.from_pretrained(served, dtype=torch.float32)
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / "exported", dtype=torch.float32)
    base = AutoModelForCausalLM.from_pretrained(policy, dtype=torch.float32)
    ids = torch.tensor([[3, 4, 5]])
    with torch.no_grad():
        one, two, none = (part.eval()(ids).logits for part in (model, exported, base))
    assert torch.allclose(one, two, atol=1e-5)
    assert not torch.allclose(one, none, atol=1e-3)
    assert len(AutoTokenizer.from_pretrained(tmp_path / "exported")) > 0


async def test_every_file_of_a_checkpoint_can_be_read_by_another_user(make: Make, tmp_path: Path) -> None:
    checkpoint = await make().save(str(tmp_path / "1"))
    files = [path for path in Path(checkpoint.path).rglob("*") if path.is_file()]
    assert files and all(path.stat().st_mode & 0o777 == 0o644 for path in files)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1"]


async def test_saving_again_replaces_the_folder(make: Make, tmp_path: Path) -> None:
    trainer = make()
    await trainer.save(str(tmp_path / "1"))
    await trainer.step(batch(), RECIPE)
    await trainer.save(str(tmp_path / "1"))
    resumed = make()
    await resumed.restore(str(tmp_path / "1"))
    assert (await resumed.step(batch(), RECIPE)).step == 2


async def test_a_folder_that_is_no_checkpoint_is_refused_in_words(make: Make, tmp_path: Path) -> None:
    trainer = make()
    checkpoint = await trainer.save(str(tmp_path / "1"))
    for file in Path(checkpoint.path).iterdir():
        if file.is_file():
            file.write_bytes(file.read_bytes()[:20])
    with pytest.raises(TrainerError, match="no checkpoint"):
        await trainer.restore(checkpoint.path)
    with pytest.raises(TrainerError, match="no checkpoint"):
        await trainer.restore(str(tmp_path / "none"))


async def test_the_event_loop_goes_on_during_a_step(make: Make) -> None:
    trainer = make()
    step = asyncio.create_task(trainer.step(batch(), Recipe(epochs=40)))
    turns = 0
    while not step.done():
        await asyncio.sleep(0)
        turns += 1
    await step
    assert turns > 100
