"""Versions: going back to an older one during learning, and beginning from a given checkpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.learner.main import check_start, run
from openclaw_rl.learner.versions import check_resume
from openclaw_rl.shared.errors import ConfigError, JournalError
from openclaw_rl.shared.records import PolicyVersion
from openclaw_rl.shared.trainer import StepReport
from tests.learner.test_loop import COMPLAINTS, states, tell
from tests.learner.world import World

Worlds = Callable[..., World]


async def test_learning_continues_from_the_version_that_was_gone_back_to(worlds: Worlds) -> None:
    world = worlds()
    await world.versions.start()
    for first in (1, 11):
        await tell(world, first, list(COMPLAINTS[:4]))
        assert await world.learner.once()
    await world.journal.set_version_state(1, "live")
    assert await world.versions.reconcile()
    assert world.engine.live == 1
    await tell(world, 21, list(COMPLAINTS[:4]))
    assert await world.learner.once()
    assert await states(world) == [(0, None, "retired"), (1, 0, "retired"), (2, 1, "retired"), (3, 1, "live")]
    version = await world.journal.version(3)
    assert version is not None and version.metrics["step"] == 2


async def test_a_step_is_dropped_when_its_version_is_pinned_during_it(worlds: Worlds) -> None:
    world = worlds()
    await world.versions.start()
    await tell(world, 1, list(COMPLAINTS[:4]))
    accept = world.versions.accept

    async def pinned(*arguments: Any) -> Any:
        await world.journal.promote(0, pin=True)
        return await accept(*arguments)

    world.versions.accept = pinned  # type: ignore[method-assign]
    with pytest.raises(JournalError, match="version 0 is pinned"):
        await world.learner.once()
    assert not await world.learner.once()
    assert world.progress.state == "paused" and "pin --off" in world.progress.detail
    assert await states(world) == [(0, None, "live")]
    assert await world.journal.ready_count() == 4

    await world.journal.unpin()
    world.versions.accept = accept  # type: ignore[method-assign]
    assert await world.learner.once()
    assert await states(world) == [(0, None, "retired"), (1, 0, "live")]


async def test_a_version_that_is_promoted_while_old_ones_are_looked_for_keeps_its_files(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = worlds(batch_size=1, rehearsals=0, anchors=0, keep_checkpoints=2)
    await world.versions.start()
    looked = world.versions._old

    def promoted(*arguments: Any) -> list[int]:
        old = looked(*arguments)
        for number in old:
            world.journal.sync.promote(number)
        return old

    monkeypatch.setattr(world.versions, "_old", promoted)
    for number in range(1, 4):
        await tell(world, 10 * number, [COMPLAINTS[number]])
        assert await world.learner.once()
    assert await states(world) == [(0, None, "retired"), (1, 0, "live"), (2, 1, "retired"), (3, 2, "retired")]
    assert (world.settings.checkpoints_path / "1" / "served").is_dir()


async def test_a_step_is_dropped_when_the_user_goes_back_during_it(worlds: Worlds, tmp_path: Path) -> None:
    world = worlds()
    await world.versions.start()
    await tell(world, 1, list(COMPLAINTS[:4]))
    assert await world.learner.once()
    step = world.trainer.step

    async def gone_back(samples: Any, recipe: Any) -> StepReport:
        report = await step(samples, recipe)
        await world.journal.set_version_state(0, "live")
        return report

    await tell(world, 11, list(COMPLAINTS[:4]))
    world.trainer.step = gone_back  # type: ignore[method-assign]
    assert await world.learner.once()
    world.trainer.step = step  # type: ignore[method-assign]
    assert await states(world) == [(0, None, "live"), (1, 0, "retired")]
    assert await world.journal.ready_count() == 4
    assert world.versions.current == 0
    assert not (tmp_path / "data" / "checkpoints" / "2").exists()

    assert await world.learner.once()
    assert await states(world) == [(0, None, "retired"), (1, 0, "retired"), (2, 0, "live")]


async def test_a_choice_between_commit_and_publishing_wins(worlds: Worlds) -> None:
    world = worlds()
    await world.versions.start()
    await tell(world, 1, list(COMPLAINTS[:4]))
    assert await world.learner.once()
    publish = world.versions.publish

    async def chosen_before(version: Any) -> None:
        await world.journal.set_version_state(0, "live")
        await publish(version)

    await tell(world, 11, list(COMPLAINTS[:4]))
    world.versions.publish = chosen_before  # type: ignore[method-assign]
    assert await world.learner.once()
    assert await states(world) == [(0, None, "live"), (1, 0, "retired"), (2, 1, "retired")]
    assert world.engine.live == 0
    await world.versions.follow()
    assert world.versions.current == 0


async def test_a_crash_after_such_a_choice_publishes_nothing(worlds: Worlds) -> None:
    first = worlds()
    await first.versions.start()

    async def dies(*_: Any) -> None:
        raise KeyboardInterrupt

    await tell(first, 1, list(COMPLAINTS[:4]))
    assert await first.learner.once()
    await tell(first, 11, list(COMPLAINTS[:4]))
    first.versions.publish = dies  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        await first.learner.once()
    await first.journal.set_version_state(0, "live")
    second = worlds()
    await second.versions.start()
    assert await states(second) == [(0, None, "live"), (1, 0, "retired"), (2, 1, "retired")]
    assert second.versions.current == 0


async def test_a_new_journal_continues_from_a_checkpoint(worlds: Worlds, tmp_path: Path) -> None:
    first = worlds()
    await first.versions.start()
    await tell(first, 1, list(COMPLAINTS[:4]))
    assert await first.learner.once()
    source = tmp_path / "data" / "checkpoints" / "1"

    second = worlds(data=tmp_path / "new", resume=str(source))
    await second.versions.start()
    assert await states(second) == [(0, None, "retired"), (1, 0, "live")]
    version = await second.journal.version(1)
    assert version is not None and version.method == "resumed" and version.guard["resumed"] == str(source)
    assert version.checkpoint == str((tmp_path / "new" / "checkpoints" / "1").resolve())
    assert second.engine.loads[-1] == (1, f"{version.checkpoint}/served", True)
    await tell(second, 1, list(COMPLAINTS[:4]))
    assert await second.learner.once()
    learned = await second.journal.version(2)
    assert learned is not None and (learned.parent, learned.metrics["step"]) == (1, 2)

    third = worlds(data=tmp_path / "new", resume=str(source))
    await third.versions.start()
    assert len(await states(third)) == 3


async def test_a_folder_without_a_checkpoint_is_refused_at_the_start(worlds: Worlds, tmp_path: Path) -> None:
    settings = worlds(train=False).settings.replace(resume=str(tmp_path))
    with pytest.raises(ConfigError, match=r"no checkpoint \(meta\.json and served not found"):
        check_resume(settings)
    with pytest.raises(ConfigError, match="resume"):
        await run(settings.replace(engine_url="http://127.0.0.1:9"), asyncio.Event())


async def test_a_folder_to_resume_is_looked_for_until_there_is_a_version_after_the_base(
    worlds: Worlds, tmp_path: Path
) -> None:
    world = worlds(train=False)
    settings = world.settings.replace(resume=str(tmp_path / "gone"))
    await world.versions.start()
    with pytest.raises(ConfigError, match="no checkpoint"):
        check_start(settings)
    await world.journal.commit_version(PolicyVersion(number=1, parent=0, state="live", checkpoint="x"))
    check_start(settings)


async def test_a_checkpoint_of_another_shape_is_refused_at_the_start(worlds: Worlds, tmp_path: Path) -> None:
    first = worlds()
    await first.versions.start()
    await tell(first, 1, list(COMPLAINTS[:4]))
    assert await first.learner.once()
    source = tmp_path / "data" / "checkpoints" / "1"
    second = worlds(data=tmp_path / "new", resume=str(source), lora_rank=4)
    with pytest.raises(ConfigError, match="cannot be gone on from"):
        await second.versions.start()
    assert [version.number for version in await second.journal.versions()] == [0]
