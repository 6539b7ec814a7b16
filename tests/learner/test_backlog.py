"""A backlog is learned from before it is too old: batches grow with it, and a person's explicit words keep."""

from __future__ import annotations

from contextlib import suppress
from types import SimpleNamespace

import pytest

from openclaw_rl.learner import batch
from openclaw_rl.shared.errors import JudgeAway
from openclaw_rl.shared.records import Feedback, Outcome, PolicyVersion, Sampling, VersionSpan
from tests.learner.judged import feedback
from tests.learner.test_judge_away import Away
from tests.learner.test_loop import COMPLAINTS, Worlds
from tests.learner.world import World


async def counts(world: World) -> dict[str, int]:
    """Main turns by what became of them."""
    status = await world.journal.status()
    stale = sum(count for reason, count in status["quarantined"].items() if reason.startswith("stale"))
    return {"consumed": status["consumed"], "ready": status["ready"], "queued": status["unjudged"], "stale": stale}


async def learn_all(world: World) -> None:
    while await world.learner.once():
        pass


async def advance(world: World, versions: int) -> None:
    """Publish versions that learned from other turns."""
    first = await world.journal.next_version_number()
    for number in range(first, first + versions):
        await world.journal.commit_version(
            PolicyVersion(number=number, parent=number - 1, state="live", checkpoint="", guard={"passed": True})
        )


async def behind(worlds: Worlds) -> World:
    """A world where two of twenty turns are judged, and the others wait for the judge."""
    world = worlds(method="binary", batch_size=2, max_version_lag=1, judge_concurrency=2)
    await world.versions.start()
    for number in range(1, 21):
        await world.says(number, "thanks")
    await world.judge.once()
    return world


@pytest.mark.parametrize("most", [0, 3, 8])
async def test_all_of_a_backlog_of_judged_turns_is_learned_from(worlds: Worlds, most: int) -> None:
    world = worlds(method="binary", batch_size=2, max_version_lag=most)
    await world.versions.start()
    for number in range(1, 41):
        await world.says(number, "thanks")
    await world.judge_all()
    await learn_all(world)
    assert await counts(world) == {"consumed": 40, "ready": 0, "queued": 0, "stale": 0}


async def test_turns_that_wait_for_the_judge_count_as_backlog(worlds: Worlds) -> None:
    world = worlds(method="binary", batch_size=2, max_version_lag=3, judge_concurrency=2)
    await world.versions.start()
    for number in range(1, 41):
        await world.says(number, "thanks")
    while await world.judge.once():
        await learn_all(world)
    found = await counts(world)
    assert (found["stale"], found["queued"]) == (0, 0)
    assert found["consumed"] >= 38


async def test_a_judge_that_makes_no_progress_is_not_waited_for(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await behind(worlds)
    assert not await world.learner.once()
    assert (world.progress.state, world.progress.detail) == (
        "waiting for the judge",
        "2 of the 10 turns that this step takes, for 20 wait in all",
    )
    monkeypatch.setattr(batch, "QUIET_SECONDS", 0.0)
    assert await world.learner.once()
    assert (await counts(world))["consumed"] == 2


async def test_a_judge_that_is_slow_is_waited_for_no_longer_than_some_minutes(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await behind(worlds)
    assert not await world.learner.once()
    await world.judge.once()
    monkeypatch.setattr(batch, "PATIENCE_SECONDS", 0.0)
    assert await world.learner.once()
    assert (await counts(world))["consumed"] == 4
    # One more version makes those too old that the judge still has, so that it is given more time.
    await world.judge.once()
    assert not await world.learner.once()
    monkeypatch.setattr(batch, "LAST_CHANCE_SECONDS", 0.0)
    assert not await world.learner.once()  # they are more than those that the step would learn from
    monkeypatch.setattr(batch, "OUTAGE_SECONDS", 0.0)
    assert await world.learner.once()


async def test_words_of_people_make_no_turn_too_old_that_waits_for_a_judge_that_is_away(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Away, "here", False)
    judge = "tests.learner.test_judge_away:Away"
    world = worlds(method="binary", batch_size=2, max_version_lag=0, judge=judge, judge_concurrency=8)
    await world.versions.start()
    for number in range(1, 5):
        await world.says(number, "thanks")
    for number in range(5, 13, 2):
        for liked in (await world.says(number, ""), await world.says(number + 1, "")):
            await world.journal.add_feedback(feedback(liked, 1.0))
        for _ in range(2):  # those without words are postponed first
            with suppress(JudgeAway):
                await world.judge.once()
        assert not await world.learner.once()
    assert (await counts(world))["ready"] == 8  # more than the step was to take
    monkeypatch.setattr(Away, "here", True)
    await world.judge_all()
    await learn_all(world)
    assert await counts(world) == {"consumed": 12, "ready": 0, "queued": 0, "stale": 0}


async def test_few_turns_without_a_verdict_hold_up_a_step_no_longer_than_hours(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = worlds(method="binary", batch_size=2, max_version_lag=0, judge_concurrency=2)
    await world.versions.start()
    for number in range(1, 5):
        await world.says(number, "thanks")
    await world.judge.once()
    assert not await world.learner.once()
    monkeypatch.setattr(batch, "PATIENCE_SECONDS", 0.0)
    assert not await world.learner.once()
    monkeypatch.setattr(batch, "LAST_CHANCE_SECONDS", 0.0)
    assert await world.learner.once()


async def test_words_of_people_wait_once_for_a_judge_that_never_comes_back(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = 0.0
    monkeypatch.setattr(batch, "time", SimpleNamespace(monotonic=lambda: clock))
    monkeypatch.setattr(Away, "here", False)
    judge = "tests.learner.test_judge_away:Away"
    world = worlds(method="binary", batch_size=2, max_version_lag=0, judge=judge, judge_concurrency=8)
    await world.versions.start()
    for version, patience in enumerate((batch.OUTAGE_SECONDS, batch.QUIET_SECONDS, batch.QUIET_SECONDS)):
        for number in range(10 * version, 10 * version + 6):
            turn = await world.says(number, "" if number % 10 < 2 else "thanks", versions=[VersionSpan(version, 0, 3)])
            if number % 10 < 2:
                await world.journal.add_feedback(feedback(turn, 1.0))
        for _ in range(3):
            with suppress(JudgeAway):
                await world.judge.once()
        assert not await world.learner.once()
        clock += patience - 1
        assert not await world.learner.once()
        clock += 1
        assert await world.learner.once()
    assert (await counts(world))["consumed"] == 6


async def test_a_backlog_that_keeps_leaves_the_batch_as_it_is(worlds: Worlds) -> None:
    world = worlds(method="binary", batch_size=2, max_version_lag=8)
    await world.versions.start()
    for number in range(1, 17):
        await world.says(number, "thanks")
    await world.judge_all()
    assert await world.learner.once()
    version = await world.journal.version(1)
    assert version is not None and len(version.sample_ids) == 2


async def test_imported_turns_make_no_batch_grow_but_those_behind_them_do(worlds: Worlds) -> None:
    world = worlds(batch_size=2, max_version_lag=1, rehearsals=0, anchors=0)
    await world.versions.start()
    for number in range(1, 21):
        await world.says(number, COMPLAINTS[number % 2], sampling=Sampling(imported=True), session_id=f"file-{number}")
    await world.judge_all()
    assert await world.learner.once()
    version = await world.journal.version(1)
    assert version is not None and len(version.sample_ids) == 2
    for number in range(31, 33):
        await world.says(number, "thanks", versions=[VersionSpan(1, 0, 3)])
    await world.judge_all()
    await learn_all(world)
    assert await counts(world) == {"consumed": 22, "ready": 0, "queued": 0, "stale": 0}


@pytest.mark.parametrize("text", ["", "No bold, please."])
async def test_explicit_words_do_not_go_stale(worlds: Worlds, text: str) -> None:
    world = worlds(batch_size=1, max_version_lag=1, rehearsals=0, anchors=0)
    await world.versions.start()
    await advance(world, 5)
    for number in range(1, 3):  # one is judged before it is too old for the batch, both are too old for the judge
        turn = await world.says(number, "")
        word = Feedback(turn_id=turn.turn_id, session_id=turn.session_id, score=-1.0, text=text)
        await world.journal.add_feedback(word)
    assert await world.judge.once() == 2
    await advance(world, 5)
    await learn_all(world)
    assert (await counts(world)) == {"consumed": 2, "ready": 0, "queued": 0, "stale": 0}


async def test_a_wish_in_the_next_message_is_distilled_however_old_and_its_reward_left_out(worlds: Worlds) -> None:
    world = worlds(method="combined", batch_size=1, max_version_lag=1)
    await world.versions.start()
    await advance(world, 5)
    await world.says(1, COMPLAINTS[0])
    await world.judge.once()
    assert (await counts(world))["stale"] == 1  # an advantage per token needs the ratio, so `combined` cannot use it

    world = worlds(method="topk-select", batch_size=1, max_version_lag=1)
    seen = world.spy()
    await world.says(2, COMPLAINTS[0])
    await world.judge.once()
    await learn_all(world)
    assert [sample.no_ratio for sample in seen] == ["sampled 5 versions ago, more than max_version_lag = 1"]


@pytest.mark.parametrize("stale", ["guess", "outcome"])
async def test_a_guess_that_needs_a_ratio_and_an_environments_verdict_go_stale(worlds: Worlds, stale: str) -> None:
    world = worlds(method="binary" if stale == "guess" else "rehearse", batch_size=1, max_version_lag=1)
    await world.versions.start()
    turn = await world.says(1, "thanks" if stale == "guess" else "")
    if stale == "outcome":
        await world.journal.add_outcome(Outcome(session_id=turn.session_id, reward=1.0))
    await advance(world, 5)
    await world.judge.once()
    assert (await counts(world))["stale"] == 1
