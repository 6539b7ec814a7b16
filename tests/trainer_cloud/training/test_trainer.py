"""The cloud trainer when its provider fails, over a stand-in that can be made to (`TorchProvider`)."""

from __future__ import annotations

import shutil
from collections import deque
from pathlib import Path
from typing import Any

import pytest
import torch

from openclaw_rl.shared.errors import TrainerAway, TrainerError
from openclaw_rl.shared.trainer import Checkpoint, Recipe
from openclaw_rl.trainer_cloud.provider import CloudError, Trouble
from openclaw_rl.trainer_cloud.training.trainer import CloudTrainer
from tests.trainer_cloud.torch_provider import TorchProvider
from tests.trainer_local.tiny import sample, settings, write_policy

RECIPE = Recipe(distillation="none", rewards="all", epochs=2, learning_rate=1e-2)
ONE = [sample(1, hints=0, reward=1.0)]
TWO = [sample(2, hints=0, reward=-1.0)]


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_policy(tmp_path_factory.mktemp("policy"))


@pytest.fixture
def provider(policy: Path) -> TorchProvider:
    return TorchProvider(policy)


def build(policy: Path, provider: TorchProvider, data: Path, **changes: Any) -> CloudTrainer:
    data.mkdir(exist_ok=True)
    return CloudTrainer(settings(policy, data=data, **changes), provider)


def error(trouble: Trouble = "away", *, undone: bool = False, **more: Any) -> CloudError:
    return CloudError(f"the provider is {trouble}", trouble, undone=undone, **more)


def weights(provider: TorchProvider, path: str) -> dict[str, torch.Tensor]:
    return dict(provider.kept[path][0].state_dict())


@pytest.mark.parametrize("where", ["forward", "update", "updated", "train"])
async def test_a_step_whose_outcome_is_unknown_counts_once_when_it_is_made_again(
    policy: Path, provider: TorchProvider, tmp_path: Path, where: str
) -> None:
    """`updated`: the provider did it, and the answer was lost."""
    troubled, untroubled = build(policy, provider, tmp_path / "a"), build(policy, provider, tmp_path / "b")
    provider.failures[where] = deque([error()])
    with pytest.raises(TrainerAway, match="did not happen: the provider is away"):
        await troubled.step(ONE, RECIPE)
    await troubled.step(ONE, RECIPE)
    await untroubled.step(ONE, RECIPE)
    saved = [await trainer.save(str(tmp_path / name / "1")) for trainer, name in ((troubled, "a"), (untroubled, "b"))]
    first, second = (weights(provider, trainer._origin.sampler) for trainer in (troubled, untroubled))  # type: ignore[union-attr]
    assert saved[0].step == saved[1].step
    assert all(torch.equal(first[name], second[name]) for name in first)


async def test_a_client_that_failed_is_thrown_away_and_the_next_continues_from_the_last_state(
    policy: Path, provider: TorchProvider, tmp_path: Path
) -> None:
    trainer = build(policy, provider, tmp_path / "data")
    await trainer.step(ONE, RECIPE)
    checkpoint = await trainer.save(str(tmp_path / "1"))
    provider.failures["updated"] = deque([error()])
    with pytest.raises(TrainerAway):
        await trainer.step(TWO, RECIPE)
    assert provider.trainings[0].closed
    report = await trainer.step(TWO, RECIPE)
    assert (checkpoint.step, report.step, len(provider.trainings)) == (1, 2, 2)


async def test_a_step_that_could_not_be_saved_is_not_counted(
    policy: Path, provider: TorchProvider, tmp_path: Path
) -> None:
    """Before another step on an unsaved one its state is kept; where that fails both are gone, and it says so."""
    trainer, untroubled = build(policy, provider, tmp_path / "a"), build(policy, provider, tmp_path / "b")
    await trainer.step(TWO, RECIPE)
    provider.failures["save_state"] = deque([error()])
    with pytest.raises(TrainerAway):
        await trainer.step(ONE, RECIPE)
    assert (await trainer.step(ONE, RECIPE)).step == (await untroubled.step(ONE, RECIPE)).step == 1
    for one, name in ((trainer, "a"), (untroubled, "b")):
        await one.save(str(tmp_path / name / "1"))
    first, second = (weights(provider, one._origin.sampler) for one in (trainer, untroubled))  # type: ignore[union-attr]
    assert all(torch.equal(first[name], second[name]) for name in first)


async def test_a_batch_that_is_refused_is_no_reason_to_wait_and_a_second_one_is(
    policy: Path, provider: TorchProvider, tmp_path: Path
) -> None:
    """One batch may be at fault; two in a row are not, and feedback is not burnt on finding out."""
    trainer = build(policy, provider, tmp_path / "data")
    provider.failures["forward"] = deque([error("refused"), error("refused"), error("refused")])
    for _ in range(2):  # the learner tries a batch twice
        with pytest.raises(TrainerError) as caught:
            await trainer.step(ONE, RECIPE)
        assert not isinstance(caught.value, TrainerAway)
        assert await trainer.obstacle() == ""
    with pytest.raises(TrainerAway):
        await trainer.step(TWO, RECIPE)
    assert "the provider is refused" in await trainer.obstacle()


async def test_a_batch_that_is_known_stands_between_two_that_are_refused(
    policy: Path, provider: TorchProvider, tmp_path: Path
) -> None:
    trainer = build(policy, provider, tmp_path / "data")
    known = Recipe(topk=7, epochs=2, learning_rate=1e-2).replace(early_stop=2.0)
    for batch in (ONE, TWO):
        provider.failures["forward"] = deque([error("refused")])
        with pytest.raises(TrainerError) as caught:
            await trainer.step(batch, RECIPE)
        assert not isinstance(caught.value, TrainerAway)
        assert (await trainer.step([sample(1, hints=1)], known)).updates == 0


@pytest.mark.parametrize("where", ["train", "resume", "save_state", "save_sampler"])
async def test_a_refusal_without_a_batch_is_waited_for(
    policy: Path, provider: TorchProvider, tmp_path: Path, where: str
) -> None:
    """As a LoRA rank that is too large: the batch is not at fault."""
    trainer = build(policy, provider, tmp_path / "data")
    if where == "resume":
        await trainer.restore((await trainer.save(str(tmp_path / "1"))).path)
    provider.failures[where] = deque([error("refused")])
    with pytest.raises(TrainerAway):
        await trainer.step(ONE, RECIPE)
        await trainer.save(str(tmp_path / "2"))
    assert "trying again" in await trainer.obstacle()


async def test_a_state_that_is_gone_is_reported_with_the_way_out(
    policy: Path, provider: TorchProvider, tmp_path: Path
) -> None:
    trainer = build(policy, provider, tmp_path / "data")
    await trainer.step(ONE, RECIPE)
    checkpoint = await trainer.save(str(tmp_path / "1"))
    await trainer.restore(checkpoint.path)
    provider.failures["resume"] = deque([error("gone")])
    with pytest.raises(TrainerAway, match="rollback"):
        await trainer.step(TWO, RECIPE)
    assert "rollback" in await trainer.obstacle()
    await trainer.restore(checkpoint.path)  # as after any step that did not happen: it is still gone
    assert "rollback" in await trainer.obstacle()
    await trainer.restore(None)
    assert await trainer.obstacle() == ""
    assert (await trainer.step(TWO, RECIPE)).step == 1


async def test_a_full_disk_is_waited_for_with_growing_pauses(
    policy: Path, provider: TorchProvider, tmp_path: Path
) -> None:
    trainer = build(policy, provider, tmp_path / "data")
    (tmp_path / "file").write_text("no folder")
    await trainer.step(ONE, RECIPE)
    with pytest.raises(TrainerAway, match="Could not write"):
        await trainer.save(str(tmp_path / "file" / "1"))
    assert "Could not write" in await trainer.obstacle()


async def test_before_a_batch_costs_anything_what_failed_is_tried_alone(
    policy: Path, provider: TorchProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("openclaw_rl.trainer_cloud.training.retry.time.monotonic", lambda: now)
    trainer = build(policy, provider, tmp_path / "data")
    provider.failures["train"] = deque([error(), error()])
    with pytest.raises(TrainerAway):
        await trainer.step(ONE, RECIPE)
    now += 6
    assert "trying again in 10 s" in await trainer.obstacle()  # the provider is there, and makes no LoRA
    now += 11
    assert await trainer.obstacle() == "" and len(provider.trainings) == 1


async def test_settings_that_no_batch_can_be_trained_with_are_reported_for_good(
    policy: Path, provider: TorchProvider, tmp_path: Path
) -> None:
    provider.most_top_logprobs = 0
    trainer = build(policy, provider, tmp_path / "data")
    for recipe, words in ((Recipe(), "binary"), (Recipe(teacher="ema"), "moving average")):
        with pytest.raises(TrainerAway, match=words):
            await trainer.step([sample(1)], recipe)
        assert words in await trainer.obstacle() and "change the settings" in await trainer.obstacle()


@pytest.mark.parametrize("trouble", ["key", "billing", "model", "limit", "away"])
async def test_an_obstacle_is_reported_until_the_provider_is_there_again(
    policy: Path, provider: TorchProvider, tmp_path: Path, trouble: Trouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("openclaw_rl.trainer_cloud.training.retry.time.monotonic", lambda: now)
    trainer = build(policy, provider, tmp_path / "data")
    assert await trainer.obstacle() == ""
    provider.failures["update"] = deque([error(trouble)])
    with pytest.raises(TrainerAway):
        await trainer.step(ONE, RECIPE)
    assert f"the provider is {trouble}; trying again in 5 s" in await trainer.obstacle()
    assert provider.offers == 0
    now += 6
    provider.away = error(trouble)
    assert f"the provider is {trouble}; trying again in 10 s" in await trainer.obstacle()
    now += 11
    provider.away = None
    assert await trainer.obstacle() == ""
    await trainer.step(ONE, RECIPE)
    await trainer.save(str(tmp_path / "1"))  # a step counts once it is saved
    provider.failures["update"] = deque([error(trouble)])
    with pytest.raises(TrainerAway):
        await trainer.step(ONE, RECIPE)
    assert "trying again in 5 s" in await trainer.obstacle()


async def test_a_provider_that_names_a_time_is_not_asked_before(
    policy: Path, provider: TorchProvider, tmp_path: Path
) -> None:
    trainer = build(policy, provider, tmp_path / "data")
    provider.failures["update"] = deque([error("limit", retry_after=120.0)])
    with pytest.raises(TrainerAway):
        await trainer.step(ONE, RECIPE)
    assert "trying again in 1" in await trainer.obstacle()


async def test_a_spent_budget_is_an_obstacle_and_nothing_is_sent(
    policy: Path, provider: TorchProvider, tmp_path: Path
) -> None:
    trainer = build(policy, provider, tmp_path / "data", cloud_daily_steps=2)
    await trainer.step(ONE, RECIPE)  # two optimizer steps
    assert "cloud_daily_steps = 2" in await trainer.obstacle()
    with pytest.raises(TrainerAway, match="cloud_daily_steps"):
        await trainer.step(TWO, RECIPE)
    assert provider.updates == 2


async def test_tokens_are_counted_as_they_were_sent(policy: Path, provider: TorchProvider, tmp_path: Path) -> None:
    trainer = build(policy, provider, tmp_path / "data")
    await trainer.step(ONE, RECIPE)
    places = len(ONE[0].prompt_ids) + len(ONE[0].response_ids) - 1
    entries = trainer._budget.ledger.day(trainer._budget._day()).items()
    spent = {(entry.purpose, entry.kind): amount for entry, amount in entries}
    assert spent["learning", "train"] == 2 * places and spent["learning", "step"] == 2
    assert spent["learning", "prefill"] == 2 * places  # after each update; before the first the logprobs are known


def spent(trainer: CloudTrainer) -> dict[str, int]:
    """The amounts that learning has spent today, by kind."""
    return {entry.kind: amount for entry, amount in trainer._budget.ledger.day(trainer._budget._day()).items()}


async def test_a_batch_that_is_known_is_scored_and_not_trained(
    policy: Path, provider: TorchProvider, tmp_path: Path
) -> None:
    trainer, recipe = build(policy, provider, tmp_path / "data"), Recipe(topk=7, epochs=2, learning_rate=1e-2)
    report = await trainer.step([sample(1, hints=1)], recipe.replace(early_stop=2.0))
    assert (report.updates, report.metrics["gradient/norm"], report.metrics["epochs"]) == (0, 0, 0)
    assert "train" not in spent(trainer) and "step" not in spent(trainer)
    assert (await trainer.step([sample(1, hints=1)], recipe)).step == 1
    assert spent(trainer)["step"] > 0


@pytest.mark.parametrize("where", ["train", "score", "forward", "update"])
@pytest.mark.parametrize("undone", [True, False])
async def test_a_step_that_fails_in_the_middle_has_spent_what_was_sent_until_then(
    policy: Path, provider: TorchProvider, tmp_path: Path, where: str, undone: bool
) -> None:
    """And what failed, unless it was certainly not taken."""
    trainer, one = build(policy, provider, tmp_path / "data"), sample(1, hints=1)
    provider.failures[where] = deque([error(undone=undone)])
    with pytest.raises(TrainerAway):
        await trainer.step([one], Recipe(distillation="topk", topk=7, epochs=4))
    places = len(one.prompt_ids) + len(one.response_ids) - 1
    text = len(one.hinted_prompts[0]) + len(one.response_ids)
    # The number of likeliest tokens is tried; teacher and base are asked; the policy is, and then it is trained.
    read = {"train": [], "score": [text], "forward": [2 * text, places], "update": [2 * text, 2 * places, places]}[
        where
    ]
    entries = spent(trainer)
    assert entries.get("prefill", 0) + entries.get("cached", 0) == sum(read[:-1] if undone else read)
    trained = where == "update" and not undone
    assert (entries.get("train", 0), entries.get("step", 0)) == ((places, 1) if trained else (0, 0))


async def test_a_state_that_no_folder_names_any_more_is_removed_at_the_provider(
    policy: Path, provider: TorchProvider, tmp_path: Path
) -> None:
    trainer = build(policy, provider, tmp_path / "data")
    folders = []
    for number in (1, 2, 3):
        await trainer.step(ONE, RECIPE)
        folders.append(Path((await trainer.save(str(tmp_path / str(number)))).path))
    assert len(provider.kept) == 6 and not provider.deleted
    for file in sorted(folders[0].rglob("*"), reverse=True):
        file.unlink() if file.is_file() else file.rmdir()
    folders[0].rmdir()
    provider.failures["delete"] = deque([error(), error()])
    await trainer.step(ONE, RECIPE)
    await trainer.save(str(tmp_path / "4"))
    assert not provider.deleted  # it could not be removed, and nothing failed because of that
    await trainer.save(str(tmp_path / "4"))
    # Version 1, and what the first save of 4 had kept.
    assert len(provider.deleted) == 4 and len(provider.kept) == 6
    for number in (2, 3, 4):
        resumed = build(policy, provider, tmp_path / "data")
        await resumed.restore(str(tmp_path / str(number)))
        # The fourth step had nothing left to learn.
        assert (await resumed.step(TWO, RECIPE)).step == min(number, 3) + 1


async def test_a_checkpoint_of_another_service_gets_states_of_its_own_before_it_is_served(
    policy: Path, provider: TorchProvider, tmp_path: Path
) -> None:
    """As with `resume`: the other service removes its own when it likes."""
    first, second = build(policy, provider, tmp_path / "a"), build(policy, provider, tmp_path / "b")
    await first.step(ONE, RECIPE)
    theirs = Path((await first.save(str(tmp_path / "a" / "checkpoints" / "1"))).path)
    ours = shutil.copytree(theirs, tmp_path / "b" / "checkpoints" / "1")
    await second.restore(str(ours))
    await second.publish(Checkpoint(path=str(ours), served=str(ours / "served"), step=1), 1, _IdleEngine(), live=True)  # type: ignore[arg-type]
    shutil.rmtree(theirs)
    await first.step(ONE, RECIPE)
    await first.save(str(tmp_path / "a" / "checkpoints" / "2"))
    assert len(provider.deleted) == 2
    assert (await second.step(TWO, RECIPE)).step == 2
    await second.restore(str(ours))
    assert (await second.step(TWO, RECIPE)).step == 2


class _IdleEngine:
    """Stands for an engine that accepts every load."""

    async def load(self, version: int, path: str, *, live: bool) -> None:
        """Nothing."""


async def test_a_list_that_cannot_be_written_is_reported_before_a_step_is_paid_for(
    policy: Path, provider: TorchProvider, tmp_path: Path
) -> None:
    trainer = build(policy, provider, tmp_path / "data")
    (tmp_path / "data" / "cloud_created.json").mkdir()
    with pytest.raises(TrainerAway, match="cloud_created"):
        await trainer.step(ONE, RECIPE)
    assert provider.updates == 0 and "cloud_created.json" in await trainer.obstacle()


async def test_restoring_sends_nothing(policy: Path, provider: TorchProvider, tmp_path: Path) -> None:
    trainer = build(policy, provider, tmp_path / "data")
    checkpoint = await trainer.save(str(tmp_path / "1"))
    fresh = build(policy, provider, tmp_path / "data")
    provider.failures["resume"] = deque([error()])
    await fresh.restore(checkpoint.path)
    with pytest.raises(TrainerAway):
        await fresh.step(ONE, RECIPE)
    await fresh.step(ONE, RECIPE)


async def test_a_provider_without_likeliest_tokens_says_which_methods_work(
    policy: Path, provider: TorchProvider, tmp_path: Path
) -> None:
    provider.most_top_logprobs = 0
    trainer = build(policy, provider, tmp_path / "data")
    with pytest.raises(TrainerError, match="binary"):
        await trainer.step([sample(1)], Recipe())
    assert provider.updates == 0


@pytest.mark.parametrize("top_logprobs", [0, 1000])
async def test_answers_of_others_are_imitated(
    policy: Path, provider: TorchProvider, tmp_path: Path, top_logprobs: int
) -> None:
    provider.most_top_logprobs = top_logprobs
    trainer = build(policy, provider, tmp_path / "data")
    recipe = Recipe(topk=7, epochs=1) if top_logprobs else RECIPE.replace(epochs=1)
    shown = [
        sample(3, hints=1, origin="demonstration", no_ratio="another prompt"),
        sample(4, hints=0, origin="revision", no_ratio="another prompt"),
    ]
    losses = [(await trainer.step(shown, recipe)).metrics["loss/imitate"] for _ in range(3)]
    assert losses[0] > losses[1] > losses[2] > 0


async def test_closing_lets_go_of_everything(policy: Path, provider: TorchProvider, tmp_path: Path) -> None:
    trainer = build(policy, provider, tmp_path / "data")
    await trainer.step(ONE, RECIPE)
    await trainer.close()
    assert provider.closed and provider.trainings[0].closed
