"""What the cloud trainer does when its provider fails, over a stand-in that can be told to (`TorchProvider`)."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

import pytest
import torch

from shared.errors import TrainerAway, TrainerError
from shared.trainer import Recipe
from tests.trainer_cloud.torch_provider import TorchProvider
from tests.trainer_local.tiny import sample, settings, write_policy
from trainer_cloud.provider import CloudError, Trouble
from trainer_cloud.trainer import CloudTrainer

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


async def test_a_client_that_failed_is_thrown_away_and_the_next_goes_on_from_the_last_state(
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


async def test_what_the_request_itself_makes_impossible_is_no_reason_to_wait(
    policy: Path, provider: TorchProvider, tmp_path: Path
) -> None:
    trainer = build(policy, provider, tmp_path / "data")
    provider.failures["forward"] = deque([error("refused")])
    with pytest.raises(TrainerError) as caught:
        await trainer.step(ONE, RECIPE)
    assert not isinstance(caught.value, TrainerAway)
    assert await trainer.obstacle() == ""


@pytest.mark.parametrize("trouble", ["key", "billing", "model", "limit", "away"])
async def test_an_obstacle_is_told_until_the_provider_is_there_again(
    policy: Path, provider: TorchProvider, tmp_path: Path, trouble: Trouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("trainer_cloud.setback.time.monotonic", lambda: now)
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
    spent = trainer._budget.spent()
    assert spent["learning", "train"] == 2 * places and spent["learning", "step"] == 2
    assert spent["learning", "prefill"] == 3 * places  # before each update, and after the last


async def test_what_no_folder_names_any_more_is_removed_at_the_provider(
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
    provider.failures["delete"] = deque([error()])
    await trainer.step(ONE, RECIPE)
    await trainer.save(str(tmp_path / "4"))
    assert not provider.deleted  # it could not be removed, and nothing failed because of that
    await trainer.save(str(tmp_path / "4"))
    # Version 1, and what the first save of 4 had kept.
    assert len(provider.deleted) == 4 and len(provider.kept) == 6
    for number in (2, 3, 4):
        resumed = build(policy, provider, tmp_path / "data")
        await resumed.restore(str(tmp_path / str(number)))
        assert (await resumed.step(TWO, RECIPE)).step == min(number, 4) + 1


async def test_restoring_asks_nobody(policy: Path, provider: TorchProvider, tmp_path: Path) -> None:
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
    provider.most = 0
    trainer = build(policy, provider, tmp_path / "data")
    with pytest.raises(TrainerError, match="binary"):
        await trainer.step([sample(1)], Recipe())
    assert provider.updates == 0


async def test_closing_lets_go_of_everything(policy: Path, provider: TorchProvider, tmp_path: Path) -> None:
    trainer = build(policy, provider, tmp_path / "data")
    await trainer.step(ONE, RECIPE)
    await trainer.close()
    assert provider.closed and provider.trainings[0].closed
