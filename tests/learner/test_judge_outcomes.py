"""Outcomes of sessions: the scores of the turns before them, alone, with step rewards, and when they come late."""

from __future__ import annotations

import pytest

from openclaw_rl.shared.records import Outcome, PolicyVersion, Timings
from tests.learner.judged import HINTS, STEPS, judgement_of, only_sample
from tests.learner.world import Worlds


async def test_an_outcome_scores_the_turns_of_its_session(untrained: Worlds) -> None:
    world = untrained()
    await world.says(1, "exit code 0", role="tool")
    await world.says(2, "")
    await world.journal.add_outcome(Outcome(session_id="session-1", reward=-0.5, detail="2 of 4 tests pass"))
    await world.judge.once()
    samples = await world.journal.ready_samples(10)
    assert [(sample.reward, sample.explicit) for sample in samples] == [(-0.5, True), (-0.5, True)]


async def test_an_outcome_skips_the_judge_unless_step_rewards_are_asked_for(untrained: Worlds) -> None:
    world = untrained(judge=STEPS)
    made = await world.says(1, "good", role="tool")
    await world.journal.add_outcome(Outcome(session_id="session-1", reward=-1.0))
    await world.judge.once()
    judgement = await judgement_of(world, made)
    assert (judgement.score, judgement.judge, judgement.selection) == (-1.0, "outcome", "none")
    assert judgement.prompt_version and judgement.reason
    assert world.judge._judge.made.asked == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("reward", "text", "weight", "score"),
    [(1.0, "bad", 0.5, (1 - 0.5) / 1.5), (-1.0, "good", 1.0, 0.0), (1.0, "good", 3.0, 1.0), (0.5, "none", 1.0, 0.5)],
)
async def test_a_step_reward_is_mixed_into_the_outcome_and_a_failed_one_leaves_it_alone(
    untrained: Worlds, reward: float, text: str, weight: float, score: float
) -> None:
    world = untrained(judge=STEPS, step_rewards=weight)
    made = await world.says(1, text, role="tool")
    last = await world.says(2, "")
    await world.journal.add_outcome(Outcome(session_id="session-1", reward=reward))
    await world.judge.once()
    judgement = await judgement_of(world, made)
    assert judgement.score == pytest.approx(score) and judgement.signal == "outcome"
    assert judgement.prompt_version == "steps-v1" and len(judgement.votes) == 1
    failed = "the step was not scored: 1 of 1 votes failed: no answer"
    assert (failed in judgement.reason) == (text == "none")
    assert (await judgement_of(world, last)).score == reward  # nothing came after it that could be judged


async def test_a_hint_from_a_tool_outlives_the_outcome(untrained: Worlds) -> None:
    world = untrained(judge=HINTS)
    made = await world.says(1, "no such file", role="tool")
    await world.judge.once()
    await world.journal.add_outcome(Outcome(session_id="session-1", reward=-1.0))
    await world.judge.once()
    judgement = await judgement_of(world, made)
    assert (judgement.score, judgement.signal, judgement.hint) == (-1.0, "outcome", "Mind this: no such file")
    assert await world.journal.recent_hints(5) == []


async def test_an_outcome_outranks_what_was_judged_of_a_tool_result_and_takes_its_votes_as_the_step(
    untrained: Worlds,
) -> None:
    world = untrained(judge=STEPS, step_rewards=1.0)
    made = await world.says(1, "good", role="tool")
    await world.judge.once()
    assert (await only_sample(world)).reward == 1.0
    await world.journal.add_outcome(Outcome(session_id="session-1", reward=-1.0))
    assert await world.judge.once() == 1
    sample = await only_sample(world)
    assert (sample.reward, sample.explicit) == (0.0, True)
    assert world.judge._judge.made.asked == 1  # type: ignore[attr-defined]
    assert "outcome -1 and step +1" in (await judgement_of(world, made)).reason


async def test_an_outcome_replaces_samples_of_tool_results_and_is_remembered_of_those_that_were_learned_from(
    untrained: Worlds,
) -> None:
    world = untrained()
    await world.versions.start()
    learned = await world.says(1, "exit code 0", role="tool")
    await world.judge.once()
    sample = await only_sample(world)
    await world.journal.commit_version(
        PolicyVersion(number=1, parent=0, state="live", checkpoint="x", sample_ids=[sample.sample_id])
    )
    ready = await world.says(2, "exit code 0", role="tool")
    await world.judge.once()
    assert (await only_sample(world)).reward == 1.0
    await world.journal.add_outcome(Outcome(session_id="session-1", reward=-1.0, detail="0 of 4 tests"))
    assert await world.judge.once() == 2
    sample = await only_sample(world)
    assert (sample.turn_id, sample.reward, sample.explicit) == (ready.turn_id, -1.0, True)
    assert (await judgement_of(world, ready)).reason == "0 of 4 tests"
    late = await judgement_of(world, learned)
    assert (late.score, late.signal) == (-1.0, "outcome")
    assert late.reason == (
        "0 of 4 tests; the outcome came after a version had learned from this turn, which is not learned from again"
    )
    assert await world.journal.unjudged(9) == []


async def test_a_turn_that_a_person_answered_or_that_came_after_the_outcome_is_judged_by_what_followed(
    untrained: Worlds,
) -> None:
    world = untrained(judge=STEPS)
    by_person = await world.says(1, "good")
    later = await world.says(2, "bad", role="tool", timings=Timings(4e9, 4e9, 4e9))
    await world.journal.add_outcome(Outcome(session_id="session-1", reward=0.5))
    await world.judge.once()
    assert [(await judgement_of(world, made)).score for made in (by_person, later)] == [1.0, -1.0]


@pytest.mark.parametrize(("gamma", "rewards"), [(0.0, [-1.0, -1.0, -1.0]), (0.5, [-0.25, -0.5, -1.0])])
async def test_an_outcome_is_discounted_over_the_main_turns_before_the_last(
    untrained: Worlds, gamma: float, rewards: list[float]
) -> None:
    world = untrained(gamma=gamma)
    made = [await world.says(number, "ok" if number < 3 else "", role="tool") for number in (1, 2, 3)]
    await world.says(9, "ok", role="tool", kind="side")
    await world.journal.add_outcome(Outcome(session_id="session-1", reward=-1.0, detail="0 of 4 tests"))
    await world.says(10, "ok", role="tool", timings=Timings(4e9, 4e9, 4e9))  # after the outcome
    await world.judge.once()
    assert [(await judgement_of(world, one)).score for one in made] == rewards
    reasons = [(await judgement_of(world, one)).reason for one in made]
    assert reasons[2] == "0 of 4 tests"
    assert ("gamma^2 (2 main turns came later)" in reasons[0]) == (gamma > 0)


async def test_an_outcome_without_a_verdict_drops_what_was_judged_of_tool_results(untrained: Worlds) -> None:
    world = untrained(judge=STEPS)
    by_tool, by_person = await world.says(1, "good", role="tool"), await world.says(2, "good")
    await world.judge.once()
    assert await world.journal.ready_count() == 2
    await world.journal.add_outcome(Outcome(session_id="session-1", reward=None, detail="the sandbox died"))
    assert await world.judge.once() == 1
    assert (await only_sample(world)).turn_id == by_person.turn_id
    explained = await world.journal.explain(by_tool.turn_id)
    assert explained is not None and explained["quarantine"]["reason"] == "no verdict: the sandbox died"
