"""Checkpoints are kept by number and size, and no step is made that could not be saved."""

from __future__ import annotations

import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from openclaw_rl.learner.loop import OBSTRUCTED
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.shared.settings.sources import load
from tests.learner.test_loop import COMPLAINTS, Worlds, tell
from tests.learner.world import World

Usage = namedtuple("Usage", "total used free")


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def kept(world: World) -> list[int]:
    return sorted(int(path.name) for path in world.settings.checkpoints_path.iterdir())


async def steps(world: World, count: int) -> None:
    for number in range(count):
        await tell(world, 10 * number + 1, [COMPLAINTS[number % len(COMPLAINTS)]])
        assert await world.learner.once()


async def test_old_checkpoints_go_when_all_together_are_too_large(worlds: Worlds) -> None:
    world = worlds(batch_size=1, rehearsals=0, anchors=0)
    await world.versions.start()
    await steps(world, 5)
    assert kept(world) == [1, 2, 3, 4, 5]
    room = 3.5 * size(world.settings.checkpoints_path / "5")

    again = worlds(batch_size=1, rehearsals=0, anchors=0, keep_checkpoints=f"8, {room / 1e9:.9f}GB")
    again.engine.live = 5
    await again.versions.start()
    await tell(again, 100, ["too long"])
    assert await again.learner.once()
    assert kept(again) == [4, 5, 6]
    assert [row.number for row in await again.journal.versions()] == [0, 1, 2, 3, 4, 5, 6]


async def test_the_live_version_and_its_parent_stay_however_large(worlds: Worlds) -> None:
    world = worlds(batch_size=1, rehearsals=0, anchors=0, keep_checkpoints="8, 0.000001 GB")
    await world.versions.start()
    await steps(world, 4)
    assert kept(world) == [3, 4]


async def test_no_step_is_made_that_could_not_be_saved(worlds: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    world = worlds(batch_size=1, rehearsals=0, anchors=0)
    await world.versions.start()
    await steps(world, 1)
    needed = size(world.settings.checkpoints_path / "1")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(1 << 40, 0, needed))
    await tell(world, 50, ["too long"])
    assert not await world.learner.once()
    assert world.progress.state == OBSTRUCTED
    assert "free" in world.progress.detail and str(world.settings.checkpoints_path) in world.progress.detail
    assert await world.journal.ready_count() == 1
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(1 << 40, 0, 1 << 40))
    assert await world.learner.once()


async def test_a_first_step_needs_some_space_too(worlds: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    world = worlds(batch_size=1, rehearsals=0, anchors=0)
    await world.versions.start()
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(1 << 40, 0, 1 << 20))
    await tell(world, 1, [COMPLAINTS[0]])
    assert not await world.learner.once()
    assert world.progress.state == OBSTRUCTED


@pytest.mark.parametrize(("value", "kept", "size"), [(4, 4, float("inf")), ("8, 20GB", 8, 20e9), ("2,0.5 GB", 2, 5e8)])
def test_number_and_size_are_one_setting(value: int | str, kept: int, size: float) -> None:
    learning = Settings(keep_checkpoints=value).learning
    assert (learning.checkpoints_kept, learning.checkpoint_bytes) == (kept, size)


@pytest.mark.parametrize("value", [1, "many", "8, 20", "8 20GB", ""])
def test_other_limits_are_refused(value: int | str) -> None:
    with pytest.raises(ConfigError, match="keep_checkpoints"):
        load({"keep-checkpoints": str(value)}, environ={})
