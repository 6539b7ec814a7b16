"""Artifacts kept at a provider and removed there, over a stand-in (`TorchProvider`)."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections import deque
from pathlib import Path
from typing import Any

import msgspec
import pytest

from openclaw_rl.shared.errors import EngineError
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_cloud import pointer
from openclaw_rl.trainer_cloud.artifacts import cleanup
from openclaw_rl.trainer_cloud.artifacts.cleanup import ArtifactCleanup
from openclaw_rl.trainer_cloud.artifacts.registry import FILE, ArtifactRegistry
from openclaw_rl.trainer_cloud.pointer import Pointer
from openclaw_rl.trainer_cloud.provider import CloudError
from tests.trainer_cloud.torch_provider import TorchProvider
from tests.trainer_local.tiny import settings, write_policy


class Stuck(TorchProvider):
    """A provider that never finishes deleting `stuck`."""

    stuck = ""

    async def delete(self, path: str) -> None:
        if path.endswith(self.stuck):
            await asyncio.Event().wait()
        await super().delete(path)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_policy(tmp_path_factory.mktemp("policy"))


def of(policy: Path, data: Path) -> Settings:
    return settings(policy, data=data)


async def saved(provider: Any, ours: Settings, number: int, name: str = "") -> tuple[Path, Pointer]:
    """A checkpoint, as the trainer writes it."""
    folder = ours.checkpoints_path / str(number)
    training = await provider.train(rank=8, seed=0)
    state, sampler = await ArtifactCleanup(provider, ours).save(
        training, name or f"v{number}", weights=True, folder=folder
    )
    found = Pointer(provider.name, ours.engine.model, 8, sampler, state, number)
    (folder / "served").mkdir(parents=True)
    found.write(folder / "served")
    found.write(folder)
    (folder / "cloud.json").rename(folder / "meta.json")
    return folder, found


def named(ours: Settings, folder: Path) -> Pointer:
    return pointer.read(folder / "served", provider="torch", model=ours.engine.model)


async def test_a_checkpoint_that_another_service_resumed_from_is_copied_before_the_source_is_removed(
    policy: Path, tmp_path: Path
) -> None:
    provider = TorchProvider(policy)
    a, b = of(policy, tmp_path / "a"), of(policy, tmp_path / "b")
    source, theirs = await saved(provider, a, 1)
    copy = b.checkpoints_path / "1"
    shutil.copytree(source, copy)
    second = ArtifactCleanup(provider, b)
    assert not await ArtifactCleanup(provider, a).foreign(source)
    assert not await second.foreign(source)  # not its own to change
    assert await second.foreign(copy)
    origin = await second.adopt(copy, theirs)
    assert origin == named(b, copy) != theirs
    assert not await second.foreign(copy) and not await ArtifactCleanup(provider, b).foreign(copy)
    assert await second.adopt(copy, None) is None
    shutil.rmtree(source)
    await ArtifactCleanup(provider, a).sweep(None)
    assert set(provider.deleted) == {theirs.state, theirs.sampler}
    await ArtifactCleanup(provider, b).sweep(None)
    ours = named(b, copy)
    assert {ours.state, ours.sampler} == set(provider.kept)
    await provider.resume(ours.state, rank=8)
    assert msgspec.json.decode((copy / "meta.json").read_bytes())["state"] == ours.state


async def test_a_provider_that_is_away_or_refuses_leaves_a_copied_checkpoint_as_it_is(
    policy: Path, tmp_path: Path
) -> None:
    provider = TorchProvider(policy)
    a, b = of(policy, tmp_path / "a"), of(policy, tmp_path / "b")
    source, theirs = await saved(provider, a, 1)
    copy = b.checkpoints_path / "1"
    shutil.copytree(source, copy)
    ours = ArtifactCleanup(provider, b)
    provider.failures["save_sampler"] = deque([CloudError("it is away", "away")])
    with pytest.raises(EngineError, match="it is away"):
        await ours.adopt(copy, theirs)
    provider.failures["resume"] = deque([CloudError("never heard of it", "refused")])
    assert await ours.adopt(copy, theirs) == theirs == named(b, copy)
    assert await ours.foreign(copy)
    assert await ours.adopt(copy, theirs) == named(b, copy) != theirs


async def test_a_data_folder_that_was_moved_keeps_what_it_names(policy: Path, tmp_path: Path) -> None:
    provider = TorchProvider(policy)
    before = of(policy, tmp_path / "before")
    await saved(provider, before, 1)
    (tmp_path / "before").rename(tmp_path / "after")
    await ArtifactCleanup(provider, of(policy, tmp_path / "after")).sweep(None)
    assert not provider.deleted


@pytest.mark.parametrize("where", ["state", "sampler"])
async def test_leftovers_of_a_save_that_was_cut_off_are_found_by_their_name(
    policy: Path, tmp_path: Path, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The save is cancelled after the provider kept a state, and its answer never came."""
    provider, ours = TorchProvider(policy), of(policy, tmp_path)
    training = await provider.train(rank=8, seed=0)
    keep = getattr(training, f"save_{where}")

    async def killed(name: str, keep: Any = keep) -> str:
        await keep(name)
        raise asyncio.CancelledError

    setattr(training, f"save_{where}", killed)
    with pytest.raises(asyncio.CancelledError):
        await ArtifactCleanup(provider, ours).save(training, "cut-off", weights=True, folder=tmp_path / "1")
    assert provider.kept
    with caplog.at_level(logging.WARNING):
        await ArtifactCleanup(provider, ours).sweep(None)
    assert any("cut-off" in one.message for one in caplog.records)
    assert [one.name for one in ArtifactRegistry(ours.serve.data).find("torch", "saving")] == ["cut-off"]


async def test_a_save_in_progress_is_not_swept_and_a_refused_one_is_forgotten(policy: Path, tmp_path: Path) -> None:
    provider, ours = TorchProvider(policy), of(policy, tmp_path)
    kept = ArtifactCleanup(provider, ours)
    training = await provider.train(rank=8, seed=0)
    provider.failures["save_state"] = deque([CloudError("no", "away", undone=True)])
    with pytest.raises(CloudError):
        await kept.save(training, "one", weights=False, folder=None)
    assert not ArtifactRegistry(tmp_path).find("torch", "saving")
    save = training.save_state

    async def sweeping(name: str) -> str:
        path = await save(name)
        await kept.sweep(None)
        return path

    training.save_state = sweeping  # type: ignore[method-assign]
    state, sampler = await kept.save(training, "two", weights=False, folder=None)
    assert sampler == "" and list(provider.kept) == [state]
    assert not ArtifactRegistry(tmp_path).find("torch", "saving")


async def test_nothing_that_is_removed_holds_up_or_fails_what_comes_after(
    policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleanup, "SWEEP_SECONDS", 0.5)
    provider, ours = Stuck(policy), of(policy, tmp_path)
    provider.stuck = "weights/v1"
    for number in (1, 2, 3):
        shutil.rmtree((await saved(provider, ours, number))[0])
    provider.failures["delete"] = deque([CloudError("not now", "away")])
    sweeping = ArtifactCleanup(provider, ours)
    await asyncio.wait_for(sweeping.sweep(None), 5)
    assert len(provider.deleted) == 3  # of six: two never end, one failed
    provider.stuck = "none"
    await sweeping.sweep(None)
    assert not provider.kept and not ArtifactRegistry(tmp_path).find("torch", "state")
    (tmp_path / FILE).unlink()
    (tmp_path / FILE).mkdir()
    await sweeping.sweep(None)
    assert not await sweeping.foreign(ours.checkpoints_path / "1")
