"""The learner loop: what it waits for, what it takes, and what happens when something fails or dies in between."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.learner import versions
from openclaw_rl.learner.loop import POLL, keep_engine_in_step
from openclaw_rl.proxy.routes.story import story
from openclaw_rl.shared.engine.protocol import Priority
from openclaw_rl.shared.errors import EngineError, JournalError, TrainerError
from openclaw_rl.shared.records import Feedback, PolicyVersion, Sample, VersionSpan
from openclaw_rl.shared.trainer import Recipe, StepReport
from tests.learner.test_judge_loop import HINTS
from tests.learner.world import World

Worlds = Callable[..., World]
COMPLAINTS = ("no bold please", "too long", "use plain sentences", "stop using lists", "write like a friend would")


async def tell(world: World, first: int, texts: list[str], **changes: Any) -> None:
    """Turns with reactions, judged."""
    for offset, text in enumerate(texts):
        await world.says(first + offset, text, **changes)
    await world.judge.once()


async def states(world: World) -> list[tuple[int, int | None, str]]:
    return [(version.number, version.parent, version.state) for version in await world.journal.versions()]


async def test_there_is_no_update_before_the_first_complaint_and_nothing_is_lost(worlds: Worlds) -> None:
    world = worlds()
    await world.versions.start()
    await tell(world, 1, ["thanks"] * 6)
    assert not await world.learner.once()
    assert world.progress.state == "waiting for a first signal"
    assert await states(world) == [(0, None, "live")]

    await tell(world, 7, ["no bold please"])
    assert await world.learner.once()
    assert await states(world) == [(0, None, "retired"), (1, 0, "live")]
    version = await world.journal.version(1)
    assert version is not None and len(version.sample_ids) == 7
    assert await world.journal.ready_count() == 0
    lessons = await world.journal.version_lessons(1)
    taught = [one for one in lessons if one["terms"] is not None]
    assert len(lessons) == 7 and [one["words"] for one in taught] == ["no bold please"]
    assert (taught[0]["terms"], taught[0]["weight"], taught[0]["advantage"]) == ({"distill": 1.0}, 1.0, None)


async def test_a_wish_that_a_person_dropped_is_taught_neither_by_itself_nor_as_a_remembered_one(worlds: Worlds) -> None:
    world = worlds()
    await world.versions.start()
    await tell(world, 1, ["no bold please", "thanks", "thanks", "thanks"])
    (wish,) = await world.journal.wishes()
    await world.journal.drop_wish(int(wish["id"]))
    assert not await world.learner.once()
    assert world.progress.state == "waiting for a first signal" and await world.journal.ready_count() == 4


async def test_a_batch_is_the_oldest_samples_and_the_rest_wait(worlds: Worlds) -> None:
    world = worlds()
    await world.versions.start()
    await tell(world, 1, [COMPLAINTS[0], "thanks", COMPLAINTS[1], "thanks"])
    assert await world.learner.once()
    await tell(world, 5, ["thanks"] * 6)
    assert await world.learner.once()
    assert await world.journal.ready_count() == 2
    assert not await world.learner.once()
    assert (world.progress.state, world.progress.detail) == ("waiting for samples", "2 of 4")


async def test_tool_results_go_along_and_make_no_batch_by_themselves(worlds: Worlds) -> None:
    world = worlds()
    await world.versions.start()
    await tell(world, 1, ["exit code 0"] * 4, role="tool")
    await tell(world, 11, [COMPLAINTS[0], "thanks", "thanks"])
    assert not await world.learner.once()
    assert world.progress.detail.startswith("3 of 4")
    await tell(world, 21, ["thanks"])
    assert await world.learner.once()
    version = await world.journal.version(1)
    assert version is not None and len(version.sample_ids) == 8
    assert (version.metrics["samples/distill"], version.metrics["samples/anchor"]) == (1 + 3, 2)


async def test_feedback_that_replaces_a_waiting_sample_is_noticed(worlds: Worlds) -> None:
    world = worlds()
    await world.versions.start()
    await tell(world, 1, ["thanks"] * 4)
    assert not await world.learner.once()
    complaint = Feedback(turn_id="turn_" + f"{2:032x}", session_id="session-1", score=-1.0, text="too long")
    await world.journal.add_feedback(complaint)
    await world.judge.once()
    assert await world.learner.once()


async def test_a_new_version_serves_right_after_its_step(worlds: Worlds) -> None:
    world = worlds()
    await world.versions.start()
    await tell(world, 1, list(COMPLAINTS[:4]))
    await world.learner.once()
    version = await world.journal.version(1)
    assert version is not None
    assert world.engine.loads == [(1, str(Path(version.checkpoint) / "served"), True)]
    assert version.metrics["loss/distill"] > 0 and version.metrics["step"] == 1
    assert version.guard["passed"] is True
    assert world.progress.figures["version"] == 1


async def test_rehearsals_come_from_the_live_policy_and_anchors_from_the_base_behind_chat(worlds: Worlds) -> None:
    world = worlds()
    await world.versions.start()
    made = [await world.says(number, text) for number, text in enumerate(COMPLAINTS[:4])]
    await world.judge.once()
    await world.learner.once()
    prompts = {tuple(one.prompt_ids) for one in made}
    assert {priority for _, _, priority in world.engine.asked} == {Priority.REHEARSAL}
    assert [version for _, version, _ in world.engine.asked].count(0) == 2
    rehearsed = [prompt for prompt, version, _ in world.engine.asked if version is None]
    assert len(rehearsed) == 3 and set(rehearsed) <= prompts


async def test_explicit_praise_trains_without_any_complaint(worlds: Worlds) -> None:
    world = worlds()
    await world.versions.start()
    for number in range(1, 5):
        made = await world.says(number, "thanks")
        await world.journal.add_feedback(Feedback(turn_id=made.turn_id, session_id=made.session_id, score=1.0))
    await world.judge.once()
    assert await world.learner.once()
    version = await world.journal.version(1)
    assert version is not None
    assert (version.metrics["samples/binary"], version.metrics["samples/distill"]) == (4, 0)
    assert all(asked == 0 for _, asked, _ in world.engine.asked)  # nothing to rehearse towards without a hint


async def test_a_hint_from_a_tool_teaches_its_own_turn_and_no_rehearsal(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = worlds(judge=HINTS)
    await world.versions.start()
    taught: list[Sample] = []
    step = world.trainer.step

    async def watched(samples: Sequence[Sample], recipe: Recipe) -> StepReport:
        taught.extend(samples)
        return await step(samples, recipe)

    monkeypatch.setattr(world.trainer, "step", watched)
    await tell(world, 1, ["no such file", "permission denied", "timed out"], role="tool")
    await tell(world, 4, ["shorter next time"])
    assert await world.learner.once()
    read = world.prompter.tokenizer.decode
    shown = {sample.hint: [read(ids) for ids in sample.hinted_prompts] for sample in taught}
    by_tool = shown["Mind this: no such file"]
    assert len(by_tool) == 1 and "no such file" in by_tool[0] and "shorter" not in by_tool[0]
    rehearsed = [read(ids) for one in taught if one.origin == "rehearsal" for ids in one.hinted_prompts]
    assert rehearsed and all("shorter next time" in text and "no such" not in text for text in rehearsed)


async def test_no_row_of_a_teacher_is_longer_than_max_sample_tokens(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lengths(first: int, **changes: Any) -> tuple[list[int], dict[str, str]]:
        world = worlds(**changes)
        await world.versions.start()
        found: list[int] = []
        step = world.trainer.step

        async def watched(samples: Sequence[Sample], recipe: Recipe) -> StepReport:
            for one in samples:
                found.extend(len(one.response_ids) + len(ids) for ids in (one.prompt_ids, *one.hinted_prompts))
            return await step(samples, recipe)

        monkeypatch.setattr(world.trainer, "step", watched)
        await tell(
            world, first, ["too long", "please use plain sentences, no lists and no bold text", "thanks", "thanks"]
        )
        assert await world.learner.once()
        return found, dict(world.progress.status()["notes"])

    usual, notes = await lengths(1)
    limit = sorted({*usual})[-2]
    assert not notes
    within, notes = await lengths(11, max_sample_tokens=limit)
    assert max(within) <= limit
    assert any(length > 16 for length in within), "some hints are short enough"
    assert notes["long prompts"].startswith(f"left out, with the answer longer than max_sample_tokens = {limit}: ")


async def test_the_binary_method_learns_from_every_score_and_makes_no_rollouts(worlds: Worlds) -> None:
    world = worlds(method="binary")
    await world.versions.start()
    await tell(world, 1, ["thanks", "no", "wrong", "ok"])
    assert await world.learner.once()
    version = await world.journal.version(1)
    assert version is not None and version.method == "binary"
    assert version.metrics["samples/binary"] == 3
    assert world.engine.asked == []


async def test_pausing_stops_updates_and_resuming_catches_up(worlds: Worlds) -> None:
    world = worlds()
    await world.versions.start()
    await tell(world, 1, list(COMPLAINTS[:4]))
    await world.journal.set_control("train", "paused")
    assert not await world.learner.once()
    assert world.progress.state == "paused"
    await world.journal.set_control("train", "running")
    assert await world.learner.once()


async def test_a_paused_learner_does_not_spin_on_news(worlds: Worlds) -> None:
    world = worlds()
    await world.versions.start()
    await world.journal.set_control("train", "paused")
    await tell(world, 1, ["no bold please"])
    looks = 0
    get_control = world.journal.get_control

    async def counted(key: str, default: Any = None) -> Any:
        nonlocal looks
        looks += 1
        return await get_control(key, default)

    world.journal.get_control = counted  # type: ignore[method-assign]
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(3 * POLL):
            await world.learner.run()
    assert 1 <= looks <= 6


async def test_a_batch_with_nothing_left_to_learn_makes_no_version(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = worlds()
    await world.versions.start()
    await tell(world, 1, list(COMPLAINTS[:4]))
    assert await world.learner.once()
    step, reports = world.trainer.step, []

    async def known(samples: Any, recipe: Recipe) -> StepReport:
        reports.append(await step(samples, recipe.replace(early_stop=2.0)))
        return reports[-1]

    monkeypatch.setattr(world.trainer, "step", known)
    await tell(world, 5, list(COMPLAINTS[:3]))
    praised = await world.says(8, "thanks")
    await world.judge.once()
    loads = list(world.engine.loads)
    assert await world.learner.once()
    assert [report.updates for report in reports] == [0]
    assert await states(world) == [(0, None, "retired"), (1, 0, "live")]
    assert world.engine.loads == loads and world.versions.current == 1
    counts = await world.journal.status()
    assert (counts["ready"], counts["consumed"], counts["known"]) == (0, 4, 4)
    explained = await world.journal.explain(praised.turn_id)
    assert explained is not None
    assert "A step found nothing left to learn from it." in list(story(explained))

    monkeypatch.setattr(world.trainer, "step", step)
    await world.journal.add_feedback(Feedback(turn_id=praised.turn_id, session_id=praised.session_id, score=1.0))
    await world.judge.once()
    await tell(world, 9, list(COMPLAINTS[:3]))
    assert await world.learner.once()
    version = await world.journal.version(2)
    assert version is not None and version.metrics["step"] == 2 and len(version.sample_ids) == 4


async def test_a_full_journal_after_the_commit_delays_the_version_and_loses_nothing(worlds: Worlds) -> None:
    world = worlds()
    await world.versions.start()
    await tell(world, 1, list(COMPLAINTS[:4]))
    make_live = world.journal.make_live
    tries = 0

    async def full_once(number: int) -> bool:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise JournalError("the disk is full")
        return await make_live(number)

    world.journal.make_live = full_once  # type: ignore[method-assign]
    assert await world.learner.once()
    assert await states(world) == [(0, None, "retired"), (1, 0, "live")]


async def test_a_batch_that_cannot_be_stepped_on_is_rejected_and_learning_continues(worlds: Worlds) -> None:
    world = worlds()
    await world.versions.start()
    step = world.trainer.step

    async def broken(samples: Any, recipe: Any) -> StepReport:
        raise TrainerError("Step 1: loss nan is not finite; the step was undone")

    await tell(world, 1, list(COMPLAINTS[:4]))
    world.trainer.step = broken  # type: ignore[method-assign]
    with pytest.raises(TrainerError):
        await world.learner.once()
    await world.learner.once()
    world.trainer.step = step  # type: ignore[method-assign]

    rejected = await world.journal.version(1)
    assert rejected is not None and rejected.state == "rejected" and "not finite" in rejected.guard["reason"]
    explained = await world.journal.explain("turn_" + f"{1:032x}")
    assert explained is not None and "not finite" in explained["quarantine"]["reason"]

    await tell(world, 11, list(COMPLAINTS[:4]))
    assert await world.learner.once()
    assert await states(world) == [(0, None, "retired"), (1, 0, "rejected"), (2, 0, "live")]


async def test_a_candidate_too_far_from_its_parent_never_serves(worlds: Worlds) -> None:
    world = worlds(guard_max_kl=1e-9)
    await world.versions.start()
    await tell(world, 1, list(COMPLAINTS[:4]))
    await world.learner.once()
    assert await states(world) == [(0, None, "live"), (1, 0, "rejected")]
    assert world.engine.loads == []
    assert world.versions.current == 0
    assert await world.journal.ready_count() == 0


async def test_an_engine_that_is_away_at_publishing_is_waited_for(worlds: Worlds) -> None:
    world = worlds(rehearsals=0, anchors=0)
    await world.versions.start()
    await tell(world, 1, list(COMPLAINTS[:4]))
    world.engine.down = True
    learning = asyncio.create_task(world.learner.once())
    async with asyncio.timeout(20):
        while not world.progress.last_error:
            await asyncio.sleep(0.01)
    assert await states(world) == [(0, None, "live"), (1, 0, "candidate")]
    world.engine.down = False
    assert await learning
    assert await states(world) == [(0, None, "retired"), (1, 0, "live")]
    assert world.progress.last_error == ""


async def test_an_engine_that_is_away_before_the_step_loses_no_sample(worlds: Worlds) -> None:
    world = worlds()
    await world.versions.start()
    await tell(world, 1, list(COMPLAINTS[:4]))
    world.engine.down = True
    with pytest.raises(EngineError):
        await world.learner.once()
    assert await world.journal.ready_count() == 4
    world.engine.down = False
    assert await world.learner.once()


@pytest.mark.parametrize("fails", [0, 1])
async def test_a_checkpoint_that_the_engine_refuses_is_rejected(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch, fails: int
) -> None:
    world = worlds()
    await world.versions.start()
    await tell(world, 1, list(COMPLAINTS[:4]))
    world.engine.refuses = True
    monkeypatch.setattr(versions, "_RETRY", 0.001)
    write = world.journal.set_version_state

    async def full(*arguments: Any) -> None:
        nonlocal fails
        fails -= 1
        if fails >= 0:
            raise JournalError("the disk is full")
        await write(*arguments)

    monkeypatch.setattr(world.journal, "set_version_state", full, raising=False)
    await world.learner.once()
    version = await world.journal.version(1)
    assert version is not None and version.state == "rejected" and "other shapes" in version.guard["reason"]
    assert world.versions.current == 0


async def test_a_committed_version_keeps_its_files_whatever_fails_after_it(
    worlds: Worlds, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = worlds()
    await world.versions.start()
    await tell(world, 1, list(COMPLAINTS[:4]))

    async def fails(*_: Any) -> None:
        raise JournalError("the disk is full")

    monkeypatch.setattr(world.versions, "publish", fails)
    with pytest.raises(JournalError):
        await world.learner.once()
    assert await states(world) == [(0, None, "live"), (1, 0, "candidate")]
    assert (tmp_path / "data" / "checkpoints" / "1" / "served").is_dir()


async def test_a_crash_after_the_commit_publishes_and_learns_nothing_twice(worlds: Worlds) -> None:
    first = worlds()
    await first.versions.start()
    await tell(first, 1, list(COMPLAINTS[:4]))

    async def dies(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    first.versions.publish = dies  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        await first.learner.once()

    second = worlds()
    await second.versions.start()
    assert await states(second) == [(0, None, "retired"), (1, 0, "live")]
    assert second.engine.live == 1
    assert second.versions.current == 1
    assert await second.journal.ready_count() == 0


async def test_a_crash_before_the_commit_means_the_step_did_not_happen(worlds: Worlds, tmp_path: Path) -> None:
    first = worlds()
    await first.versions.start()
    await tell(first, 1, list(COMPLAINTS[:4]))
    commit = first.journal.commit_version

    async def dies(version: PolicyVersion, lessons: object) -> None:
        raise KeyboardInterrupt

    first.journal.commit_version = dies  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        await first.learner.once()
    first.journal.commit_version = commit  # type: ignore[method-assign]
    assert (tmp_path / "data" / "checkpoints" / "1").is_dir()

    second = worlds()
    await second.versions.start()
    assert (await states(second), second.versions.current) == ([(0, None, "live")], 0)
    assert await second.journal.ready_count() == 4
    assert await second.learner.once()
    assert await states(second) == [(0, None, "retired"), (1, 0, "live")]


async def test_after_a_restart_the_trainer_continues_from_the_newest_version(worlds: Worlds) -> None:
    first = worlds()
    await first.versions.start()
    await tell(first, 1, list(COMPLAINTS[:4]))
    await first.learner.once()
    second = worlds()
    await second.versions.start()
    await tell(second, 5, list(COMPLAINTS[:4]))
    await second.learner.once()
    version = await second.journal.version(2)
    assert version is not None and version.metrics["step"] == 2


async def test_a_forgotten_session_undoes_the_step_that_was_learning_from_it(worlds: Worlds) -> None:
    world = worlds()
    await world.versions.start()
    await tell(world, 1, list(COMPLAINTS[:4]))
    step = world.trainer.step

    async def forgetting(samples: Any, recipe: Any) -> StepReport:
        await world.journal.forget("session-1")
        return await step(samples, recipe)

    world.trainer.step = forgetting  # type: ignore[method-assign]
    with pytest.raises(JournalError):
        await world.learner.once()
    assert await states(world) == [(0, None, "live")]
    assert world.versions.current == 0


async def test_stale_samples_are_quarantined_with_the_reason(worlds: Worlds) -> None:
    world = worlds(method="binary", max_version_lag=0)
    await world.versions.start()
    await tell(world, 1, ["thanks"])
    await world.journal.commit_version(
        PolicyVersion(number=1, parent=0, state="live", checkpoint="", guard={"passed": True})
    )
    await tell(world, 6, ["thanks"] * 3, versions=[VersionSpan(1, 0, 3)])
    assert not await world.learner.once()
    assert await world.journal.ready_count() == 3
    explained = await world.journal.explain("turn_" + f"{1:032x}")
    assert explained is not None and "stale" in explained["quarantine"]["reason"]


async def test_old_checkpoints_go_and_the_live_one_and_its_parent_stay(worlds: Worlds, tmp_path: Path) -> None:
    world = worlds(keep_checkpoints=2, batch_size=1, rehearsals=0, anchors=0)
    await world.versions.start()
    for number in range(1, 5):
        await tell(world, number, [COMPLAINTS[number % 3]])
        assert await world.learner.once()
    assert sorted(path.name for path in (tmp_path / "data" / "checkpoints").iterdir()) == ["3", "4"]


async def test_an_engine_that_came_back_with_old_weights_gets_the_live_version(worlds: Worlds) -> None:
    world = worlds()
    await world.versions.start()
    await tell(world, 1, list(COMPLAINTS[:4]))
    await world.learner.once()
    world.engine.live = 0
    watch = asyncio.create_task(keep_engine_in_step(world.versions, world.progress))
    try:
        async with asyncio.timeout(20):
            while world.engine.live != 1:
                await asyncio.sleep(0.01)
            world.engine.down = True
            while "asking the engine" not in world.progress.last_error:
                await asyncio.sleep(0.01)
            world.engine.down = False
            while world.progress.last_error:
                await asyncio.sleep(0.01)
    finally:
        watch.cancel()
    assert not await world.versions.reconcile()


async def test_the_loop_runs_by_itself_and_tells_its_errors(worlds: Worlds) -> None:
    world = worlds()
    await world.versions.start()
    world.engine.down = True
    await tell(world, 1, list(COMPLAINTS[:4]))
    loop = asyncio.create_task(world.learner.run())
    try:
        async with asyncio.timeout(30):
            while "cannot be reached" not in world.progress.last_error:
                await asyncio.sleep(0.01)
            world.engine.down = False
            while await world.journal.version(1) is None or (await world.journal.live_version()).number != 1:  # type: ignore[union-attr]
                await asyncio.sleep(0.01)
    finally:
        loop.cancel()
