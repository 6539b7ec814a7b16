"""A judge that cannot be reached: turns wait for it, and what needs no judge does not wait with them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from openclaw_rl.shared.errors import JudgeAway
from openclaw_rl.shared.records import Judgement, NextState, Outcome, Turn
from tests.learner.judged import feedback
from tests.learner.world import Worlds


class Away:
    """A judge whose model cannot be reached until the test says so."""

    here = False

    def __init__(self, settings: Any) -> None:
        self.settings = settings

    async def judge(self, turn: Turn, next_state: NextState) -> Judgement:
        if not Away.here:
            raise JudgeAway("the judge waits for its engine at http://127.0.0.1:1")
        return Judgement(turn_id=turn.turn_id, score=1.0)


async def test_turns_wait_while_the_judge_is_away_and_the_status_says_so(
    untrained: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openclaw_rl.learner.judge.loop._PAUSE_AFTER_FAILURE", 0.02)
    world = untrained(judge="tests.learner.test_judge_away:Away")
    waiting = await world.says(1, "thanks")
    liked = await world.says(2, "")
    await world.journal.add_feedback(feedback(liked, 1.0))
    loop = asyncio.create_task(world.judge.run())
    try:
        async with asyncio.timeout(20):
            while "waits for its engine" not in world.progress.status()["last_error"]:
                await asyncio.sleep(0.01)
            await world.judge.judged.wait()  # what a person said needs no judge
            assert [turn.turn_id for turn in await world.journal.unjudged(9)] == [waiting.turn_id]
            assert (await world.journal.status())["unjudged"] == 1
            monkeypatch.setattr(Away, "here", True)
            while await world.journal.unjudged(1) or world.progress.last_error:
                await asyncio.sleep(0.01)
    finally:
        loop.cancel()
    assert await world.journal.ready_count() == 2


async def test_feedback_and_outcomes_are_settled_behind_any_number_of_turns_that_wait(
    untrained: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openclaw_rl.learner.judge.loop._PAUSE_AFTER_FAILURE", 0.01)
    monkeypatch.setattr(Away, "here", False)
    world = untrained(judge="tests.learner.test_judge_away:Away", judge_concurrency=2)
    waiting = [await world.says(number, "thanks") for number in range(1, 8)]
    disliked = [await world.says(number, "and then?", session_id="disliked") for number in (8, 9, 10)]
    for turn in disliked:  # the judge may find a hint in what came next
        await world.journal.add_feedback(feedback(turn, -1.0))
    liked = await world.says(11, "thanks", session_id="liked")
    await world.journal.add_feedback(feedback(liked, 1.0))
    alone = await world.says(12, "", session_id="alone")
    await world.journal.add_feedback(feedback(alone, -1.0))
    by_tool = await world.says(14, "ok", role="tool", session_id="by_tool")
    await world.journal.add_feedback(feedback(by_tool, -1.0))
    tested = await world.says(13, "ok", role="tool", session_id="tested")
    await world.journal.add_outcome(Outcome(session_id="tested", reward=0.5))
    read, asked = world.journal.unjudged, set[int]()

    async def watched(limit: int, **options: Any) -> list[Turn]:
        asked.add(limit)
        return await read(limit, **options)

    world.journal.unjudged = watched  # type: ignore[method-assign]
    left = sorted(turn.turn_id for turn in [*waiting, *disliked, by_tool])
    loop = asyncio.create_task(world.judge.run())
    try:
        async with asyncio.timeout(20):
            while sorted(turn.turn_id for turn in await read(99)) != left:
                await asyncio.sleep(0.01)
            assert "waits for its engine" in world.progress.last_error  # what was settled does not hide it
            rewards = {one.turn_id: one.reward for one in await world.journal.ready_samples(9)}
            assert rewards == {liked.turn_id: 1.0, alone.turn_id: -1.0, tested.turn_id: 0.5}
            assert asked == {2}  # no more are read at a time
            monkeypatch.setattr(Away, "here", True)
            while await read(1) or world.progress.last_error:
                await asyncio.sleep(0.01)
    finally:
        loop.cancel()
    assert await world.journal.ready_count() == 14


class AwayForSome:
    """A judge whose model never answers about certain turns."""

    def __init__(self, settings: Any) -> None:
        self.settings = settings

    async def judge(self, turn: Turn, next_state: NextState) -> Judgement:
        if next_state.text == "never":
            raise JudgeAway("no answer within 60 s")
        return Judgement(turn_id=turn.turn_id, score=1.0)


async def test_turns_that_never_get_an_answer_hold_up_no_others(
    untrained: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openclaw_rl.learner.judge.loop._PAUSE_AFTER_FAILURE", 0.01)
    world = untrained(judge="tests.learner.test_judge_away:AwayForSome", judge_concurrency=2)
    never = [await world.says(number, "never") for number in range(1, 5)]
    for number in range(5, 12):
        await world.says(number, "thanks")
    loop = asyncio.create_task(world.judge.run())
    try:
        async with asyncio.timeout(20):
            while len(await world.journal.unjudged(99)) > len(never):
                await asyncio.sleep(0.01)
    finally:
        loop.cancel()
    assert [turn.turn_id for turn in await world.journal.unjudged(99)] == [turn.turn_id for turn in never]
    assert await world.journal.ready_count() == 7
