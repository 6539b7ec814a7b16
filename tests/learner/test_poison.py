"""Batches and turns that end the learner's process are set aside by name, after their second time."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from openclaw_rl.shared.errors import JournalError
from openclaw_rl.shared.journal import Journal
from tests.learner.test_loop import COMPLAINTS, Worlds, tell
from tests.learner.world import World


class Death(BaseException):
    """The end of the process at this place: no handler of ours runs."""


def dying(world: World) -> list[list[str]]:
    """Let the trainer's steps end the process; the sample ids of each."""
    begun: list[list[str]] = []

    async def step(samples: Any, recipe: Any) -> Any:
        begun.append([one.sample_id for one in samples if one.turn_id])
        raise Death

    world.trainer.step = step  # type: ignore[method-assign]
    return begun


async def restarted(worlds: Worlds, **changes: Any) -> World:
    world = worlds(**changes)
    await world.journal.count_deaths()
    await world.versions.start()
    return world


async def reasons(world: World) -> dict[str, int]:
    status = await world.journal.status()
    quarantined: dict[str, int] = status["quarantined"]
    return quarantined


FIELDS: dict[str, Any] = {"method": "binary", "batch_size": 2, "max_version_lag": 8}


async def test_a_batch_whose_step_ends_the_process_twice_is_set_aside_by_name(worlds: Worlds) -> None:
    world = await restarted(worlds, **FIELDS)
    await tell(world, 1, [COMPLAINTS[0], "thanks", "thanks", "thanks"])
    tries = []
    for _ in range(2):
        tries.append(dying(world))
        with pytest.raises(Death):
            await world.learner.once()
        world = await restarted(worlds, **FIELDS)
    assert tries[0] == tries[1] != []
    assert await world.learner.once()
    rejected = await world.journal.version(1)
    assert rejected is not None and rejected.state == "rejected"
    assert list(rejected.sample_ids) == tries[0][0]
    assert "ended the learner 2 times" in rejected.guard["reason"]
    assert await world.learner.once()  # the next batch is learned from as ever
    live = await world.journal.live_version()
    assert live is not None and (live.number, len(live.sample_ids)) == (2, 2)


async def test_a_death_that_is_no_steps_doing_counts_for_none(worlds: Worlds) -> None:
    world = await restarted(worlds, **FIELDS)
    await tell(world, 1, [COMPLAINTS[0], "thanks"])
    for _ in range(3):
        show = world.versions.save

        async def killed(*_: Any) -> Any:
            raise Death

        world.versions.save = killed  # type: ignore[method-assign]
        with pytest.raises(Death):
            await world.learner.once()
        world.versions.save = show  # type: ignore[method-assign]
        world = await restarted(worlds, **FIELDS)
    assert await world.learner.once()
    live = await world.journal.live_version()
    assert live is not None and live.number == 1


async def test_a_clean_stop_in_a_step_is_no_death(worlds: Worlds) -> None:
    world = await restarted(worlds, **FIELDS)
    await tell(world, 1, [COMPLAINTS[0], "thanks"])
    for _ in range(3):
        dying(world)
        with pytest.raises(Death):
            await world.learner.once()
        await world.journal.stop_work()
        world = await restarted(worlds, **FIELDS)
    assert await world.learner.once()
    live = await world.journal.live_version()
    assert live is not None and live.number == 1


async def test_a_batch_that_grew_with_the_backlog_is_tried_again_at_its_usual_size(worlds: Worlds) -> None:
    fields = FIELDS | {"max_version_lag": 0}
    world = await restarted(worlds, **fields)
    await tell(world, 1, ["thanks"] * 8)
    await world.judge_all()
    begun = dying(world)
    with pytest.raises(Death):
        await world.learner.once()
    world = await restarted(worlds, **fields)
    again = dying(world)
    with pytest.raises(Death):
        await world.learner.once()
    assert (len(begun[0]), len(again[0])) == (8, 2)


async def test_learning_pauses_when_batch_after_batch_ends_the_process(worlds: Worlds) -> None:
    world = await restarted(worlds, **FIELDS)
    await tell(world, 1, ["thanks"] * 8)
    await world.judge_all()
    for _ in range(5):
        dying(world)
        with contextlib.suppress(Death):
            while await world.learner.once():
                pass
        world = await restarted(worlds, **FIELDS)
    assert not await world.learner.once()
    assert world.progress.state == "paused"
    assert [one.state for one in await world.journal.versions()] == ["live", "rejected", "rejected"]
    assert await world.journal.ready_count() == 4
    assert "2 batches in a row" in await world.journal.get_control("pause reason")


async def test_an_error_that_is_not_ours_costs_its_batch_and_not_the_learner(worlds: Worlds) -> None:
    world = await restarted(worlds, **FIELDS)
    await tell(world, 1, [COMPLAINTS[0], "thanks"])

    async def broken(samples: Any, recipe: Any) -> Any:
        raise ZeroDivisionError("in a custom loss")

    world.trainer.step = broken  # type: ignore[method-assign]
    with pytest.raises(Exception, match="ZeroDivisionError"):
        await world.learner.once()
    assert await world.learner.once()
    assert any("ZeroDivisionError: in a custom loss" in reason for reason in await reasons(world))


async def test_a_turn_that_ends_the_judges_process_is_judged_alone_and_then_set_aside(worlds: Worlds) -> None:
    world = await restarted(worlds, train=False)
    for number in range(1, 5):
        await world.says(number, "deadly" if number == 2 else "thanks")

    def deadly(world: World) -> list[list[str]]:
        rounds: list[list[str]] = []
        settle, begin = world.judge._settle, world.judge._begin

        async def poisoned(turn: Any, *others: Any) -> bool:
            rounds[-1].append(turn.turn_id)
            if turn.turn_id == f"turn_{2:032x}":
                raise Death
            return await settle(turn, *others)

        async def begun(working: Any) -> int:
            rounds.append([])
            return await begin(working)

        world.judge._settle = poisoned  # type: ignore[method-assign]
        world.judge._begin = begun  # type: ignore[method-assign]
        return rounds

    rounds = deadly(world)
    with pytest.raises(Death):
        await world.judge.once()
    assert len(rounds[0]) == 4
    world = await restarted(worlds, train=False)
    rounds = deadly(world)
    with pytest.raises(Death):
        await world.judge_all()
    assert rounds[-1] == [f"turn_{2:032x}"]
    world = await restarted(worlds, train=False)
    await world.judge_all()
    assert await reasons(world) == {"judging it ended the learner 2 times": 1}
    assert (await world.journal.status())["unjudged"] == 0


async def test_a_death_in_a_step_is_not_the_judges(worlds: Worlds) -> None:
    world = await restarted(worlds, train=False)
    turn = await world.says(1, "")
    for _ in range(3):
        await world.journal.begin_work("judge", [turn.turn_id])
        await world.journal.begin_work("step", ["sample_1"])
        await world.journal.count_deaths()
    assert await world.journal.deaths("judge") == {}
    assert await world.journal.deaths("step") == {"sample_1": 3}


def test_forgetting_a_session_forgets_its_deaths(tmp_path: Any) -> None:
    from tests.shared.journal_records import make_turn

    journal = Journal(tmp_path / "journal.db")
    turn = make_turn()
    journal.open_episode("ses", "policy", "test")
    journal.record_turn(turn)
    journal.begin_work("judge", [turn.turn_id])
    journal.count_deaths()
    assert journal.deaths("judge") == {turn.turn_id: 1}
    journal.forget("ses")
    assert journal.deaths("judge") == {}
    journal.begin_work("judge", [turn.turn_id])  # a judge that had read it before
    assert journal.count_deaths() == {}
    journal.close()


async def broken_save(*_: Any) -> Any:
    raise ZeroDivisionError("not one of our errors")


async def full_disk(*_: Any) -> Any:
    raise JournalError("the disk is full")


@pytest.mark.parametrize("failing", [("versions", "save", broken_save), ("journal", "end_work", full_disk)])
async def test_a_step_that_failed_after_it_was_made_is_not_in_the_weights_when_it_is_made_again(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch, failing: tuple[str, str, Any]
) -> None:
    world = await restarted(worlds, **FIELDS)
    await tell(world, 1, [COMPLAINTS[0], "thanks"])
    part, name, fails = failing
    with monkeypatch.context() as patch:
        patch.setattr(getattr(world, part), name, fails)
        with pytest.raises((ZeroDivisionError, JournalError)):
            await world.learner.once()
    assert await world.learner.once()
    live = await world.journal.live_version()
    assert live is not None and (live.number, live.metrics["step"]) == (1, 1)
