"""Promises of every trainer (`shared.trainer.Trainer`), whatever it runs on. A backend passes this suite or is not
a backend.

`tests/real` runs it on cloud trainers, with `make`, `subject` and `policy` of its own.
"""

from __future__ import annotations

import asyncio
import math
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, AutoTokenizer

from openclaw_rl.learner.methods import METHODS
from openclaw_rl.shared.backends import backend
from openclaw_rl.shared.errors import TrainerError
from openclaw_rl.shared.hooks import resolve
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.shared.trainer import Recipe, Trainer
from openclaw_rl.trainer_local.sglang.weight_transfer import Batches
from tests.trainer_local.tiny import anchor, sample, settings, write_policy

BACKENDS = {
    "embedded-lora": ("embedded", {"lora": True}),
    "embedded-lora-dropout": ("embedded", {"lora": True, "lora_dropout": 0.2}),
    "embedded-full": ("embedded", {"lora": False}),
}
RECIPE = Recipe(learning_rate=1e-2)

Make = Callable[[], Trainer]


def model_in(folder: Path) -> Any:
    """The model in a folder, with its vision encoder where it has one."""
    sees = hasattr(AutoConfig.from_pretrained(folder), "vision_config")
    kind = AutoModelForImageTextToText if sees else AutoModelForCausalLM
    return kind.from_pretrained(folder, dtype=torch.float32)


async def _whole(trainer: Trainer, folder: Path) -> dict[str, torch.Tensor]:
    await trainer.export(str(folder))
    found = dict(model_in(folder).state_dict())
    shutil.rmtree(folder)
    return found


async def adapter(trainer: Trainer, folder: Path) -> dict[str, torch.Tensor]:
    """The exported adapter."""
    await trainer.export(str(folder))
    found = load_file(folder / "adapter_model.safetensors")
    shutil.rmtree(folder)
    return found


@dataclass(frozen=True)
class Subject:
    """Facts about a backend that the suite needs: a recipe that it can learn by, whether it compares distributions
    (with hints and anchors), how far apart weights may be that are the same, how many epochs are many, and how its
    weights are looked at.
    """

    recipe: Recipe = RECIPE
    distils: bool = True
    tolerance: float = 0.0
    many: int = 40
    weights: Callable[[Trainer, Path], Awaitable[dict[str, torch.Tensor]]] = _whole

    def equal(self, first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
        """Return whether two sets of weights are the same."""
        apart = [float((first[name] - second[name]).abs().max()) for name in first]
        return first.keys() == second.keys() and max(apart) <= self.tolerance

    def batch(self, first: int = 1) -> list[Sample]:
        """Turns to learn from: two with hints, one with explicit praise, a rehearsal and an anchor; or, where
        distributions are not compared, turns with praise and blame.
        """
        if self.distils:
            return batch(first)
        rewards = (1.0, -1.0, 1.0)
        return [sample(first + number, hints=0, reward=reward) for number, reward in enumerate(rewards)]


@pytest.fixture
def subject() -> Subject:
    return Subject()


@pytest.fixture
def distils(subject: Subject) -> None:
    if not subject.distils:
        pytest.skip("this backend's server tells no likeliest tokens, so it compares no distributions")


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


def loaded(folder: Path, base: Path) -> Any:
    """A model folder, or an adapter on its base, as other tools load it."""
    whole = not (folder / "adapter_config.json").exists()
    model = model_in(folder if whole else base)
    return model if whole else PeftModel.from_pretrained(model, folder)


class RecordingEngine:
    """Stands for an engine that only records the versions that it is to load."""

    def __init__(self) -> None:
        self.loads: list[tuple[int, str, bool]] = []

    async def load(self, version: int, path: str, *, live: bool) -> None:
        self.loads.append((version, path, live))


class TakingEngine(RecordingEngine):
    """One that takes tensors too, and keeps them."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: dict[str, torch.Tensor] = {}

    async def load_tensors(self, version: int, batches: Batches, path: str) -> None:
        self.taken = {name: part.clone() for batch in batches() for name, part in batch}


async def test_a_step_reports_finite_numbers_and_what_it_learned_from(make: Make, subject: Subject) -> None:
    samples = subject.batch()
    report = await make().step(samples, subject.recipe)
    assert report.step == 1
    assert list(report.sample_ids) == [one.sample_id for one in samples]
    assert {"loss/total", "gradient/norm", "learning_rate", "tokens", "seconds", "kl/parent"} <= report.metrics.keys()
    assert all(math.isfinite(value) for value in report.metrics.values())
    assert report.metrics["kl/parent"] > 0


@pytest.mark.usefixtures("distils")
async def test_without_an_importance_ratio_the_hint_teaches_and_the_reward_does_not(
    make: Make, subject: Subject, tmp_path: Path
) -> None:
    rewarded = sample(1, reward=-1.0, explicit=True, no_ratio="sampled with top_p 0.9")
    report = await (with_reward := make()).step([rewarded], subject.recipe)
    assert (report.metrics["samples/distill"], report.metrics["samples/binary"]) == (1, 0)
    await (without := make()).step([sample(1)], subject.recipe)
    assert subject.equal(
        await subject.weights(with_reward, tmp_path / "a"), await subject.weights(without, tmp_path / "b")
    )
    thumbs = [sample(1, hints=0, reward=-1.0, explicit=True), sample(2, hints=0, reward=1.0, explicit=True)]
    with_ratio = await make().step([thumbs[0], msgspec.structs.replace(thumbs[1], no_ratio="greedy")], subject.recipe)
    assert with_ratio.metrics["samples/binary"] == 1


@pytest.mark.usefixtures("distils")
async def test_a_hint_replaces_the_thumb_with_it_unless_every_reward_trains(make: Make, subject: Subject) -> None:
    both = sample(1, reward=-1.0, explicit=True)
    report = await make().step([both], subject.recipe)
    assert (report.metrics["samples/distill"], report.metrics["samples/binary"]) == (1, 0)
    every = await make().step([both], subject.recipe.replace(rewards="all"))
    assert (every.metrics["samples/distill"], every.metrics["samples/binary"]) == (1, 1)


@pytest.mark.usefixtures("distils")
async def test_steps_bring_the_policy_closer_to_the_hinted_teacher(make: Make, subject: Subject) -> None:
    trainer = make()
    samples = [sample(1, response=12), sample(2, response=12)]
    losses = [(await trainer.step(samples, subject.recipe)).metrics["loss/distill"] for _ in range(8)]
    assert losses[-1] < 0.6 * losses[0]


async def test_resuming_from_a_checkpoint_is_exact_to_the_bit(make: Make, subject: Subject, tmp_path: Path) -> None:
    uninterrupted, saved = make(), make()
    await uninterrupted.step(subject.batch(1), subject.recipe)
    await uninterrupted.step(subject.batch(11), subject.recipe)
    await saved.step(subject.batch(1), subject.recipe)
    checkpoint = await saved.save(str(tmp_path / "1"))

    resumed = make()
    await resumed.restore(checkpoint.path)
    report = await resumed.step(subject.batch(11), subject.recipe)

    assert (checkpoint.step, report.step) == (1, 2)
    assert subject.equal(
        await subject.weights(resumed, tmp_path / "a"), await subject.weights(uninterrupted, tmp_path / "b")
    )
    assert not subject.equal(
        await subject.weights(saved, tmp_path / "a"), await subject.weights(resumed, tmp_path / "b")
    )


@pytest.mark.parametrize("name", list(METHODS))
async def test_each_method_learns_and_resumes_to_the_bit_or_says_what_to_take(
    make: Make, subject: Subject, tmp_path: Path, name: str
) -> None:
    recipe = METHODS[name].recipe(Settings(method=name, epochs=2, learning_rate=1e-2, minibatches=1).learning)
    first, second = (
        [sample(n), sample(n + 1, hints=1), sample(n + 2, hints=0, reward=1.0, explicit=True)] for n in (1, 11)
    )
    trainer, resumed = make(), make()
    try:
        report = await trainer.step(first, recipe)
    except TrainerError as error:
        assert not subject.distils or "no cloud provider" in str(error), "it has whole distributions"
        assert ": take " in str(error)
        return
    # The answers' logprobs are made up: in some models the clip of the ratio stops every token.
    assert report.updates > 0 and (report.metrics["gradient/norm"] > 0 or report.metrics["ratio/clipped"] == 1.0)
    if not subject.distils:
        return  # a provider computes with numbers that the method does not change
    checkpoint = await trainer.save(str(tmp_path / "1"))
    await resumed.restore(checkpoint.path)
    for one in (trainer, resumed):
        assert (await one.step(second, recipe)).step == 2
    assert subject.equal(await subject.weights(resumed, tmp_path / "a"), await subject.weights(trainer, tmp_path / "b"))


async def test_restoring_nothing_is_the_untouched_base(make: Make, subject: Subject, tmp_path: Path) -> None:
    trainer, fresh = make(), make()
    await trainer.step(subject.batch(), subject.recipe)
    await trainer.restore(None)
    assert subject.equal(await subject.weights(trainer, tmp_path / "a"), await subject.weights(fresh, tmp_path / "b"))
    first, second = (
        await trainer.step(subject.batch(3), subject.recipe),
        await fresh.step(subject.batch(3), subject.recipe),
    )
    assert first.step == second.step == 1
    assert first.metrics["loss/total"] == second.metrics["loss/total"]


async def test_a_step_that_is_not_finite_changes_nothing(make: Make, subject: Subject, tmp_path: Path) -> None:
    trainer, untroubled = make(), make()
    poisoned = sample(9, hints=0, reward=-1.0, explicit=True, logprobs=[float("nan")] * 4)
    await trainer.step(subject.batch(1), subject.recipe)
    before = await subject.weights(trainer, tmp_path / "a")
    with pytest.raises(TrainerError, match="not finite"):
        await trainer.step([*subject.batch(5), poisoned], subject.recipe)
    assert subject.equal(before, await subject.weights(trainer, tmp_path / "a"))

    await untroubled.step(subject.batch(1), subject.recipe)
    reports = [await one.step(subject.batch(21), subject.recipe) for one in (trainer, untroubled)]
    assert reports[0].step == reports[1].step == 2
    assert subject.equal(
        await subject.weights(trainer, tmp_path / "a"), await subject.weights(untroubled, tmp_path / "b")
    )


async def test_a_rate_at_which_it_explodes_is_undone_too(make: Make, subject: Subject, tmp_path: Path) -> None:
    trainer = make()
    before = await subject.weights(trainer, tmp_path / "a")
    with pytest.raises(TrainerError):
        await trainer.step(subject.batch(), subject.recipe.replace(learning_rate=1e30))
    assert subject.equal(before, await subject.weights(trainer, tmp_path / "a"))


async def test_nothing_to_learn_from_changes_nothing(make: Make, subject: Subject, tmp_path: Path) -> None:
    trainer = make()
    before = await subject.weights(trainer, tmp_path / "a")
    recipe = subject.recipe.replace(rewards="explicit")
    report = await trainer.step([sample(1, hints=0, reward=-1.0)], recipe)
    assert report.metrics["loss/total"] == 0.0
    assert subject.equal(before, await subject.weights(trainer, tmp_path / "a"))


async def test_a_judges_score_trains_only_where_the_method_says_so(make: Make, subject: Subject) -> None:
    judged = [sample(1, hints=0, reward=-1.0)]
    for rewards, count in (("explicit", 0), ("all", 1)):
        recipe = subject.recipe.replace(rewards=rewards)
        assert (await make().step(judged, recipe)).metrics["samples/binary"] == count


async def test_praise_makes_an_answer_likelier_and_blame_less_likely(make: Make, subject: Subject) -> None:
    def ratios(trainer: Trainer, reward: float) -> Any:
        recipe = subject.recipe.replace(epochs=6, learning_rate=3e-3)
        return trainer.step([sample(1, hints=0, reward=reward, explicit=True)], recipe)

    praised, blamed = make(), make()
    first = (await ratios(praised, 1.0)).metrics["ratio/mean"]
    second = (await ratios(blamed, -1.0)).metrics["ratio/mean"]
    assert first > second


async def test_publishing_hands_the_served_folder_to_the_engine(make: Make, subject: Subject, tmp_path: Path) -> None:
    trainer, engine = make(), RecordingEngine()
    await trainer.step(subject.batch(), subject.recipe)
    checkpoint = await trainer.save(str(tmp_path / "1"))
    await trainer.publish(checkpoint, 1, engine, live=True)  # type: ignore[arg-type]
    await trainer.publish(checkpoint, 1, engine, live=False)  # type: ignore[arg-type]
    assert engine.loads == [(1, checkpoint.served, True), (1, checkpoint.served, False)]


async def test_full_weights_go_to_an_engine_that_takes_tensors_and_adapters_as_folders(
    make: Make, subject: Subject, tmp_path: Path
) -> None:
    trainer, engine = make(), TakingEngine()
    await trainer.step(subject.batch(), subject.recipe)
    checkpoint = await trainer.save(str(tmp_path / "1"))
    await trainer.step(subject.batch(5), subject.recipe)  # what is in memory is no longer what is published
    await trainer.publish(checkpoint, 1, engine, live=True)  # type: ignore[arg-type]
    whole = Path(checkpoint.served) / "model.safetensors"
    if not whole.exists():
        assert engine.loads == [(1, checkpoint.served, True)] and not engine.taken
        return
    wanted = load_file(whole)
    assert not engine.loads and engine.taken.keys() == wanted.keys()
    assert all(torch.equal(engine.taken[name], part) for name, part in wanted.items())


async def test_other_tools_load_what_is_served_and_what_is_exported(
    make: Make, subject: Subject, policy: Path, tmp_path: Path
) -> None:
    trainer = make()
    await trainer.step(subject.batch(), subject.recipe)
    checkpoint = await trainer.save(str(tmp_path / "1"))
    await trainer.export(str(tmp_path / "exported"))
    served = Path(checkpoint.served)
    if not subject.distils:
        pytest.skip("its weights are served where they are; what is exported is compared with what is served elsewhere")
    model, exported = loaded(served, policy), loaded(tmp_path / "exported", policy)
    base = model_in(policy)
    ids = torch.tensor([[3, 4, 5]])
    with torch.no_grad():
        one, two, none = (part.eval()(ids).logits for part in (model, exported, base))
    # Float32 sums differ from one processor to another, by far less than the step has changed.
    assert (one - two).abs().max() < 0.01 * (one - none).abs().max()
    assert not torch.allclose(one, none, atol=1e-3)
    assert len(AutoTokenizer.from_pretrained(tmp_path / "exported")) > 0


async def test_every_file_of_a_checkpoint_can_be_read_by_another_user(make: Make, tmp_path: Path) -> None:
    checkpoint = await make().save(str(tmp_path / "1"))
    files = [path for path in Path(checkpoint.path).rglob("*") if path.is_file()]
    assert files and all(path.stat().st_mode & 0o777 == 0o644 for path in files)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1"]


async def test_saving_again_replaces_the_folder(make: Make, subject: Subject, tmp_path: Path) -> None:
    trainer = make()
    await trainer.save(str(tmp_path / "1"))
    await trainer.step(subject.batch(), subject.recipe)
    await trainer.save(str(tmp_path / "1"))
    resumed = make()
    await resumed.restore(str(tmp_path / "1"))
    assert (await resumed.step(subject.batch(), subject.recipe)).step == 2


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


async def test_the_event_loop_runs_on_during_a_step(make: Make, subject: Subject) -> None:
    trainer = make()
    step = asyncio.create_task(trainer.step(subject.batch(), subject.recipe.replace(epochs=subject.many)))
    turns = 0
    while not step.done():
        await asyncio.sleep(0)
        turns += 1
    await step
    assert turns > 100
