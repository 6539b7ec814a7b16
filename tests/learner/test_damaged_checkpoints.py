"""Checkpoints whose files changed on disk: never served or trained on; the nearest intact ancestor takes over."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.learner.versions import DAMAGED
from openclaw_rl.shared.checkpoints import SERVED, damage, folder_digest, nearest_intact, sealed_digest, unsealed
from openclaw_rl.shared.records import PolicyVersion
from tests.learner.test_loop import COMPLAINTS, states, tell
from tests.learner.world import World, Worlds


async def _learned(worlds: Worlds, versions: int = 2) -> World:
    world = worlds()
    await world.versions.start()
    for number in range(versions):
        await tell(world, 1 + 10 * number, list(COMPLAINTS[:4]))
        assert await world.learner.once()
    return world


async def _version(world: World, number: int) -> PolicyVersion:
    version = await world.journal.version(number)
    assert version is not None
    return version


def _flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 0x10
    path.write_bytes(content)


async def test_a_checkpoint_says_what_it_was_made_from_and_what_it_holds(worlds: Worlds, tmp_path: Path) -> None:
    world = await _learned(worlds)
    folder = tmp_path / "data" / "checkpoints" / "2"
    meta = json.loads((folder / "meta.json").read_text())
    version = await _version(world, 2)
    assert (meta["parent"], meta["sample_ids"], meta["step"]) == (1, list(version.sample_ids), 2)
    held = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert set(meta["files"]) == held - {"meta.json"}
    assert damage(folder) == ""
    assert sealed_digest(folder) == folder_digest(folder / "served") != ""


async def test_every_file_that_changes_or_goes_is_named(worlds: Worlds, tmp_path: Path) -> None:
    await _learned(worlds, 1)
    folder = tmp_path / "data" / "checkpoints" / "1"
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        kept = path.read_bytes()
        for place in {0, len(kept) // 2, len(kept) - 2}:
            _flip(path, place)
            assert str(path) in damage(folder)
            path.write_bytes(kept)
        path.write_bytes(kept[: len(kept) // 2])
        assert str(path) in damage(folder)
        path.unlink()
        # A checkpoint without `meta.json` is one of an older version; a trainer refuses it for what else it lacks.
        assert path.name == "meta.json" or str(path) in damage(folder)
        path.write_bytes(kept)
    assert damage(folder) == ""


@pytest.mark.parametrize("file", ["served/adapter_model.safetensors", "trainer.pt", "meta.json"])
async def test_the_nearest_intact_ancestor_takes_over(worlds: Worlds, tmp_path: Path, file: str) -> None:
    first = await _learned(worlds)
    await first.journal.close()
    path = tmp_path / "data" / "checkpoints" / "2" / file
    _flip(path, path.stat().st_size // 2)

    world = worlds()
    await world.versions.start()
    assert await states(world) == [(0, None, "retired"), (1, 0, "live"), (2, 1, "retired")]
    assert world.versions.current == 1
    assert str(path) in world.progress.notes[DAMAGED] and "Version 1 is live instead" in world.progress.notes[DAMAGED]
    assert str(path) in (await _version(world, 2)).guard["damaged"]
    await world.versions.reconcile()
    assert world.engine.live == 1
    await tell(world, 31, list(COMPLAINTS[:4]))
    assert await world.learner.once()
    assert (await states(world))[-1] == (3, 1, "live")


async def test_a_version_that_is_made_live_while_checkpoints_are_read_stays_live(
    worlds: Worlds, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = worlds(train=False)
    gone = str(tmp_path / "gone")
    for number, parent, checkpoint in ((0, None, ""), (1, 0, ""), (2, 1, gone)):
        version = PolicyVersion(number=number, parent=parent, state="live", checkpoint=checkpoint)
        await world.journal.commit_version(version)

    def read(*arguments: Any) -> tuple[PolicyVersion, str]:
        world.journal.sync.promote(0)
        return nearest_intact(*arguments)

    monkeypatch.setattr("openclaw_rl.learner.versions.nearest_intact", read)
    assert (await world.versions.follow()).number == 0
    assert [version.state for version in world.journal.sync.versions()] == ["live", "retired", "retired"]


async def test_the_base_takes_over_where_no_ancestor_is_intact(worlds: Worlds, tmp_path: Path) -> None:
    first = await _learned(worlds)
    await first.journal.close()
    for number in (1, 2):
        _flip(tmp_path / "data" / "checkpoints" / str(number) / "trainer.pt", 900)
    world = worlds()
    await world.versions.start()
    assert await states(world) == [(0, None, "live"), (1, 0, "retired"), (2, 1, "retired")]
    assert world.versions.current == 0


async def test_other_weights_under_the_live_number_are_replaced(worlds: Worlds) -> None:
    world = await _learned(worlds, 1)
    version = await _version(world, 1)
    world.engine.digest = sealed_digest(Path(version.checkpoint))
    assert not await world.versions.reconcile()
    world.engine.digest = "0" * 64
    before = len(world.engine.loads)
    assert await world.versions.reconcile()
    assert [load[0] for load in world.engine.loads[before:]] == [1]


async def test_a_candidate_that_was_damaged_before_it_was_published_is_rejected(
    worlds: Worlds, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await _learned(worlds, 1)

    async def killed(version: PolicyVersion) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(first.versions, "publish", killed)
    await tell(first, 11, list(COMPLAINTS[:4]))
    with pytest.raises(KeyboardInterrupt):
        await first.learner.once()
    await first.journal.close()
    _flip(tmp_path / "data" / "checkpoints" / "2" / "served" / "adapter_model.safetensors", 2000)
    world = worlds()
    await world.versions.start()
    assert await states(world) == [(0, None, "retired"), (1, 0, "live"), (2, 1, "rejected")]
    assert "SHA-256" in (await _version(world, 2)).guard["reason"]


async def test_a_checkpoint_of_an_older_version_has_no_seal_and_is_used_if_its_weights_are_there(
    worlds: Worlds, tmp_path: Path
) -> None:
    await _learned(worlds, 1)
    folder = tmp_path / "data" / "checkpoints" / "1"
    meta = unsealed(json.loads((folder / "meta.json").read_text()))
    (folder / "meta.json").write_text(json.dumps(meta))
    assert damage(folder) == damage(folder, SERVED) == ""
    (folder / SERVED).rename(folder / "elsewhere")
    assert damage(folder, SERVED) == f"{folder / SERVED} is gone"
