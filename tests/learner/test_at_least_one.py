"""`at_least_one`: a session that the judge left out altogether still gives one sample, and only one."""

from __future__ import annotations

import asyncio

import pytest

from openclaw_rl.shared.errors import JournalError
from openclaw_rl.shared.records import Judgement, Outcome
from tests.learner.judged import STEPS, ended, feedback, judgement_of, only_sample
from tests.learner.world import Worlds


async def test_a_session_that_the_judge_left_out_gives_its_last_judged_turn_once(untrained: Worlds) -> None:
    world = untrained(judge=STEPS, at_least_one=True)
    lost = await ended(world, "?", "?", "")
    await ended(world, "?", "good", session="mixed")
    await world.judge.once()
    assert await world.judge.keep_one() == 1
    samples = {sample.turn_id: sample for sample in await world.journal.ready_samples(10)}
    assert set(samples) == {lost[1].turn_id, "turn_mixed_2"}
    assert (samples[lost[1].turn_id].reward, samples[lost[1].turn_id].explicit) == (0.0, False)
    judgement = await judgement_of(world, lost[1])
    assert judgement.judge == "at_least_one" and "left out every judged turn" in judgement.reason
    explained = await world.journal.explain(lost[1].turn_id)
    assert explained is not None and explained["quarantine"] is None
    assert await world.judge.keep_one() == 0
    assert await world.judge.once() == 0
    assert len(await world.journal.ready_samples(10)) == 2


async def test_a_crash_between_sample_and_word_of_it_keeps_it_at_one_sample(untrained: Worlds) -> None:
    world = untrained(judge=STEPS, at_least_one=True)
    (lost,) = await ended(world, "?")
    await world.judge.once()
    write = world.journal.add_judgement

    async def crash(judgement: Judgement) -> None:
        raise JournalError("journal.db: the process was killed here")

    world.journal.add_judgement = crash  # type: ignore[method-assign]
    with pytest.raises(JournalError):
        await world.judge.keep_one()
    world.journal.add_judgement = write  # type: ignore[method-assign]
    first = await only_sample(world)
    again = untrained(judge=STEPS, at_least_one=True)
    assert await again.judge.keep_one() == 1
    second = await only_sample(again)
    assert (second.turn_id, second.reward) == (lost.turn_id, 0.0)
    states = sorted(sample["state"] for sample in (await again.journal.explain(lost.turn_id))["samples"])  # type: ignore[index]
    assert states == ["ready", "superseded"] and first.sample_id != second.sample_id
    assert await again.judge.keep_one() == 0


async def test_later_feedback_replaces_the_kept_turns_reward(untrained: Worlds) -> None:
    world = untrained(judge=STEPS, at_least_one=True)
    (lost,) = await ended(world, "?")
    await world.judge.once()
    await world.judge.keep_one()
    await world.journal.add_feedback(feedback(lost, 1.0))
    await world.judge.once()
    assert (await only_sample(world)).reward == 1.0
    assert await world.judge.keep_one() == 0


async def test_a_session_whose_outcome_is_no_verdict_stays_dropped(untrained: Worlds) -> None:
    world = untrained(judge=STEPS, at_least_one=True)
    await ended(world, "?")
    await world.judge.once()
    await world.journal.add_outcome(Outcome(session_id="session-1", reward=None))
    assert await world.judge.keep_one() == 0
    assert await world.journal.ready_count() == 0


async def test_the_loop_keeps_one_only_where_that_is_asked_for(untrained: Worlds) -> None:
    for at_least_one, count in ((False, 0), (True, 1)):
        world = untrained(judge=STEPS, at_least_one=at_least_one)
        if not at_least_one:
            await ended(world, "?")
        loop = asyncio.create_task(world.judge.run())
        try:
            async with asyncio.timeout(20):
                if at_least_one:
                    await world.judge.judged.wait()
                else:
                    while await world.journal.unjudged(1):
                        await asyncio.sleep(0.01)
        finally:
            loop.cancel()
            await asyncio.gather(loop, return_exceptions=True)
        assert await world.journal.ready_count() == count
