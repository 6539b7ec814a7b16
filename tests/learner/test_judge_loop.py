"""The judge loop: what each kind of signal makes of a turn, and that nothing is judged wrong, twice or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from shared.errors import JournalError, JudgeAway
from shared.records import (
    Feedback,
    ImageSpan,
    Judgement,
    NextState,
    Outcome,
    PolicyVersion,
    Sample,
    Sampling,
    Timings,
    Turn,
    VersionSpan,
    Vote,
)

from .world import World

Worlds = Callable[..., World]


@pytest.fixture
def worlds(worlds: Worlds) -> Worlds:
    """Worlds without a trainer: they open faster."""
    return partial(worlds, train=False)


async def only_sample(world: World) -> Sample:
    (sample,) = await world.journal.ready_samples(10)
    return sample


async def quarantine(world: World, turn: Turn) -> str:
    told = await world.journal.explain(turn.turn_id)
    assert told is not None
    assert await world.journal.ready_count() == 0
    return str(told["quarantine"]["reason"])


def feedback(turn: Turn, score: float | None, text: str = "") -> Feedback:
    return Feedback(turn_id=turn.turn_id, session_id=turn.session_id, score=score, text=text)


async def test_a_complaint_becomes_a_sample_with_a_hint(worlds: Worlds) -> None:
    world = worlds()
    made = await world.says(1, "Thanks, but please no bold.")
    assert await world.judge.once() == 1
    sample = await only_sample(world)
    assert (sample.turn_id, sample.reward, sample.explicit, sample.hint) == (
        made.turn_id,
        -1.0,
        False,
        "please no bold.",
    )
    assert list(sample.response_ids) == list(made.response_ids)
    judgement = await world.journal.judgement(made.turn_id)
    assert judgement is not None and judgement.hint == "please no bold." and judgement.judge == "rules"
    assert await world.judge.once() == 0


async def test_a_reward_on_a_filtered_answer_is_set_aside_and_a_hint_on_it_is_not(worlds: Worlds) -> None:
    world = worlds()
    praised = await world.says(1, "", sampling=Sampling(top_p=0.9))
    await world.journal.add_feedback(feedback(praised, 1.0))
    await world.judge.once()
    reason = await quarantine(world, praised)
    assert "sampled with top_p 0.9" in reason and "method rehearse" in reason
    await world.says(2, "Thanks, but please no bold.", sampling=Sampling(frequency_penalty=0.3, top_p=0.9))
    await world.judge.once()
    sample = await only_sample(world)
    assert sample.hint == "please no bold." and "top_p 0.9 and frequency_penalty 0.3" in sample.no_ratio


@pytest.mark.parametrize(
    ("sampling", "told"), [(Sampling(top_k=20), "top_k 20"), (Sampling(temperature=0), "greedily")], ids=str
)
async def test_method_binary_learns_nothing_from_answers_without_a_ratio(
    worlds: Worlds, sampling: Sampling, told: str
) -> None:
    world = worlds(method="binary")
    made = await world.says(1, "Thanks, but please no bold.", sampling=sampling)
    await world.judge.once()
    assert told in await quarantine(world, made)
    await world.says(2, "Thanks, but please no bold.", sampling=Sampling(temperature=0.7))
    await world.judge.once()
    assert (await only_sample(world)).no_ratio == ""


async def test_a_tool_result_scores_and_hints_nothing(worlds: Worlds) -> None:
    world = worlds()
    await world.says(1, "Error: use plain sentences", role="tool")
    await world.judge.once()
    sample = await only_sample(world)
    assert (sample.reward, sample.hint) == (-1.0, None)


async def test_explicit_feedback_outranks_what_the_user_typed(worlds: Worlds) -> None:
    world = worlds()
    made = await world.says(1, "thanks")
    await world.journal.add_feedback(feedback(made, 1.0))
    await world.journal.add_feedback(feedback(made, -1.0))
    await world.judge.once()
    sample = await only_sample(world)
    assert (sample.reward, sample.explicit) == (-1.0, True)


async def test_feedback_without_words_takes_the_hint_from_the_next_message(worlds: Worlds) -> None:
    world = worlds()
    made = await world.says(1, "no lists please")
    await world.journal.add_feedback(feedback(made, -1.0))
    await world.judge.once()
    sample = await only_sample(world)
    assert (sample.reward, sample.explicit, sample.hint) == (-1.0, True, "no lists please.")


@pytest.mark.parametrize(
    ("score", "text", "reward", "hint"),
    [
        (-1.0, "too long", -1.0, "too long."),
        (-1.0, "greet me by my first name", -1.0, "greet me by my first name"),
        (-1.0, "wrong", -1.0, None),
        (1.0, "much better", 1.0, None),
        (1.0, "", 1.0, None),
        (0.5, "", 0.5, None),
        (None, "too long", -1.0, "too long."),
        (None, "perfect", 1.0, None),
    ],
)
async def test_a_comment_is_read_like_a_message(
    worlds: Worlds, score: float | None, text: str, reward: float, hint: str | None
) -> None:
    world = worlds()
    made = await world.says(1, "")
    await world.journal.add_feedback(feedback(made, score, text))
    await world.judge.once()
    sample = await only_sample(world)
    assert (sample.reward, sample.hint, sample.explicit) == (reward, hint, True)


async def test_feedback_on_a_judged_turn_replaces_its_sample(worlds: Worlds) -> None:
    world = worlds()
    made = await world.says(1, "thanks")
    await world.judge.once()
    await world.journal.add_feedback(feedback(made, -1.0, "too long"))
    assert await world.judge.once() == 1
    sample = await only_sample(world)
    assert (sample.reward, sample.hint) == (-1.0, "too long.")
    assert await world.judge.once() == 0


async def test_feedback_on_a_turn_that_was_learned_from_is_remembered_and_not_learned_again(worlds: Worlds) -> None:
    world = worlds()
    await world.versions.start()
    made = await world.says(1, "thanks")
    await world.judge.once()
    sample = await only_sample(world)
    await world.journal.commit_version(
        PolicyVersion(number=1, parent=0, state="live", checkpoint="x", sample_ids=[sample.sample_id])
    )
    await world.journal.add_feedback(feedback(made, -1.0, "no bold please"))
    assert await world.judge.once() == 1
    assert await world.journal.ready_count() == 0
    assert await world.journal.recent_hints(5) == ["no bold please."]
    assert await world.judge.once() == 0


async def test_a_turn_that_is_being_learned_from_waits(worlds: Worlds) -> None:
    world = worlds()
    made = await world.says(1, "thanks")
    world.in_flight.add(made.turn_id)
    assert await world.judge.once() == 0
    world.in_flight.clear()
    assert await world.judge.once() == 1


async def test_an_outcome_scores_the_turns_of_its_session(worlds: Worlds) -> None:
    world = worlds()
    await world.says(1, "exit code 0", role="tool")
    await world.says(2, "")
    await world.journal.add_outcome(Outcome(session_id="session-1", reward=-0.5, detail="2 of 4 tests pass"))
    await world.judge.once()
    samples = await world.journal.ready_samples(10)
    assert [(sample.reward, sample.explicit) for sample in samples] == [(-0.5, True), (-0.5, True)]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"logprobs": [-1.0, float("nan"), -1.0]}, "logprobs"),
        ({"response_ids": [], "logprobs": []}, "empty"),
        ({"image_spans": [ImageSpan(0, 1)]}, "images"),
        ({"response_ids": [7] * 40, "logprobs": [-1.0] * 40, "versions": [VersionSpan(0, 0, 40)]}, "max_sample_tokens"),
    ],
)
async def test_what_cannot_be_trained_on_is_quarantined_with_a_reason(
    worlds: Worlds, changes: dict[str, Any], reason: str
) -> None:
    world = worlds(max_sample_tokens=40)
    made = await world.says(1, "no bold please", **changes)
    await world.judge.once()
    assert reason in await quarantine(world, made)
    judgement = await world.journal.judgement(made.turn_id)
    assert judgement is not None and judgement.hint == "no bold please."  # the wish is remembered all the same


async def test_a_turn_of_several_versions_is_a_sample_with_all_its_spans(worlds: Worlds) -> None:
    world = worlds()
    spans = (VersionSpan(0, 0, 1), VersionSpan(1, 1, 3))
    await world.says(1, "thanks", versions=spans)
    await world.judge.once()
    assert (await only_sample(world)).versions == spans


class Failing:
    """A judge whose votes all fail."""

    def __init__(self, settings: Any) -> None:
        self.settings = settings

    async def judge(self, turn: Turn, next_state: NextState) -> Judgement:
        return Judgement(
            turn_id=turn.turn_id, score=None, votes=[Vote(failure="no connection")], reason="no connection"
        )


async def test_votes_that_all_fail_are_no_neutral_score(worlds: Worlds) -> None:
    world = worlds(judge="tests.learner.test_judge_loop:Failing")
    made = await world.says(1, "thanks")
    await world.judge.once()
    assert await quarantine(world, made) == "no vote succeeded: no connection"
    judgement = await world.journal.judgement(made.turn_id)
    assert judgement is not None and judgement.score is None


class Steps:
    """A judge by the words of the next state: good, bad, or a failed vote; it counts how often it was asked."""

    def __init__(self, settings: Any) -> None:
        self.asked = 0

    async def judge(self, turn: Turn, next_state: NextState) -> Judgement:
        self.asked += 1
        score = {"good": 1.0, "bad": -1.0}.get(next_state.text)
        vote = Vote(text="looked", score=score) if score is not None else Vote(failure="no answer")
        reason = "looked" if score is not None else "1 of 1 votes failed: no answer"
        return Judgement(turn_id=turn.turn_id, score=score, votes=[vote], prompt_version="steps-v1", reason=reason)


STEPS = "tests.learner.test_judge_loop:Steps"


async def told(world: World, turn: Turn) -> Judgement:
    judgement = await world.journal.judgement(turn.turn_id)
    assert judgement is not None
    return judgement


async def test_an_outcome_skips_the_judge_unless_step_rewards_are_asked_for(worlds: Worlds) -> None:
    world = worlds(judge=STEPS)
    made = await world.says(1, "good", role="tool")
    await world.journal.add_outcome(Outcome(session_id="session-1", reward=-1.0))
    await world.judge.once()
    judgement = await told(world, made)
    assert (judgement.score, judgement.judge, judgement.selection) == (-1.0, "outcome", "none")
    assert judgement.prompt_version and judgement.reason
    assert world.judge._judge.made.asked == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("reward", "text", "weight", "score"),
    [(1.0, "bad", 0.5, (1 - 0.5) / 1.5), (-1.0, "good", 1.0, 0.0), (1.0, "good", 3.0, 1.0), (0.5, "none", 1.0, 0.5)],
)
async def test_a_step_reward_is_mixed_into_the_outcome_and_a_failed_one_leaves_it_alone(
    worlds: Worlds, reward: float, text: str, weight: float, score: float
) -> None:
    world = worlds(judge=STEPS, step_rewards=weight)
    made = await world.says(1, text, role="tool")
    last = await world.says(2, "")
    await world.journal.add_outcome(Outcome(session_id="session-1", reward=reward))
    await world.judge.once()
    judgement = await told(world, made)
    assert judgement.score == pytest.approx(score) and judgement.signal == "outcome"
    assert judgement.prompt_version == "steps-v1" and len(judgement.votes) == 1
    failed = "the step was not scored: 1 of 1 votes failed: no answer"
    assert (failed in judgement.reason) == (text == "none")
    assert (await told(world, last)).score == reward  # nothing came after it that could be judged


async def test_an_outcome_outranks_what_was_judged_of_a_tool_result_and_takes_its_votes_as_the_step(
    worlds: Worlds,
) -> None:
    world = worlds(judge=STEPS, step_rewards=1.0)
    made = await world.says(1, "good", role="tool")
    await world.judge.once()
    assert (await only_sample(world)).reward == 1.0
    await world.journal.add_outcome(Outcome(session_id="session-1", reward=-1.0))
    assert await world.judge.once() == 1
    sample = await only_sample(world)
    assert (sample.reward, sample.explicit) == (0.0, True)
    assert world.judge._judge.made.asked == 1  # type: ignore[attr-defined]
    assert "outcome -1 and step +1" in (await told(world, made)).reason


async def test_an_outcome_replaces_samples_of_tool_results_and_is_remembered_of_those_that_were_learned_from(
    worlds: Worlds,
) -> None:
    world = worlds()
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
    assert (await told(world, ready)).reason == "0 of 4 tests"
    late = await told(world, learned)
    assert (late.score, late.signal) == (-1.0, "outcome")
    assert late.reason == (
        "0 of 4 tests; the outcome came after a version had learned from this turn, which is not learned from again"
    )
    assert await world.journal.unjudged(9) == []


async def test_a_turn_that_a_person_answered_or_that_came_after_the_outcome_is_judged_by_what_followed(
    worlds: Worlds,
) -> None:
    world = worlds(judge=STEPS)
    by_person = await world.says(1, "good")
    later = await world.says(2, "bad", role="tool", timings=Timings(4e9, 4e9, 4e9))
    await world.journal.add_outcome(Outcome(session_id="session-1", reward=0.5))
    await world.judge.once()
    assert [(await told(world, made)).score for made in (by_person, later)] == [1.0, -1.0]


@pytest.mark.parametrize(("gamma", "rewards"), [(0.0, [-1.0, -1.0, -1.0]), (0.5, [-0.25, -0.5, -1.0])])
async def test_an_outcome_is_discounted_over_the_main_turns_before_the_last(
    worlds: Worlds, gamma: float, rewards: list[float]
) -> None:
    world = worlds(gamma=gamma)
    made = [await world.says(number, "ok" if number < 3 else "", role="tool") for number in (1, 2, 3)]
    await world.says(9, "ok", role="tool", kind="side")
    await world.journal.add_outcome(Outcome(session_id="session-1", reward=-1.0, detail="0 of 4 tests"))
    await world.says(10, "ok", role="tool", timings=Timings(4e9, 4e9, 4e9))  # after the outcome
    await world.judge.once()
    assert [(await told(world, one)).score for one in made] == rewards
    reasons = [(await told(world, one)).reason for one in made]
    assert reasons[2] == "0 of 4 tests"
    assert ("gamma^2 (2 main turns came later)" in reasons[0]) == (gamma > 0)


async def ended(world: World, *texts: str, session: str = "session-1") -> list[Turn]:
    """A session of turns with these next states that is over."""
    await world.journal.open_episode(session, "policy", "test")
    made = [
        await world.says(number, text, session_id=session, turn_id=f"turn_{session}_{number}")
        for number, text in enumerate(texts, start=1)
    ]
    await world.journal.end_episode(session, "session-done")
    return made


async def test_a_session_that_the_judge_left_out_gives_its_last_judged_turn_once(worlds: Worlds) -> None:
    world = worlds(judge=STEPS, at_least_one=True)
    lost = await ended(world, "?", "?", "")
    await ended(world, "?", "good", session="mixed")
    await world.judge.once()
    assert await world.judge.keep_one() == 1
    samples = {sample.turn_id: sample for sample in await world.journal.ready_samples(10)}
    assert set(samples) == {lost[1].turn_id, "turn_mixed_2"}
    assert (samples[lost[1].turn_id].reward, samples[lost[1].turn_id].explicit) == (0.0, False)
    judgement = await told(world, lost[1])
    assert judgement.judge == "at_least_one" and "left out every judged turn" in judgement.reason
    explained = await world.journal.explain(lost[1].turn_id)
    assert explained is not None and explained["quarantine"] is None
    assert await world.judge.keep_one() == 0
    assert await world.judge.once() == 0
    assert len(await world.journal.ready_samples(10)) == 2


async def test_a_crash_between_sample_and_word_of_it_keeps_it_at_one_sample(worlds: Worlds) -> None:
    world = worlds(judge=STEPS, at_least_one=True)
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
    again = worlds(judge=STEPS, at_least_one=True)
    assert await again.judge.keep_one() == 1
    second = await only_sample(again)
    assert (second.turn_id, second.reward) == (lost.turn_id, 0.0)
    states = sorted(sample["state"] for sample in (await again.journal.explain(lost.turn_id))["samples"])  # type: ignore[index]
    assert states == ["ready", "superseded"] and first.sample_id != second.sample_id
    assert await again.judge.keep_one() == 0


async def test_later_feedback_replaces_the_kept_turns_reward(worlds: Worlds) -> None:
    world = worlds(judge=STEPS, at_least_one=True)
    (lost,) = await ended(world, "?")
    await world.judge.once()
    await world.judge.keep_one()
    await world.journal.add_feedback(feedback(lost, 1.0))
    await world.judge.once()
    assert (await only_sample(world)).reward == 1.0
    assert await world.judge.keep_one() == 0


async def test_an_outcome_without_a_verdict_drops_what_was_judged_of_tool_results(worlds: Worlds) -> None:
    world = worlds(judge=STEPS)
    by_tool, by_person = await world.says(1, "good", role="tool"), await world.says(2, "good")
    await world.judge.once()
    assert await world.journal.ready_count() == 2
    await world.journal.add_outcome(Outcome(session_id="session-1", reward=None, detail="the sandbox died"))
    assert await world.judge.once() == 1
    assert (await only_sample(world)).turn_id == by_person.turn_id
    explained = await world.journal.explain(by_tool.turn_id)
    assert explained is not None and explained["quarantine"]["reason"] == "no verdict: the sandbox died"


async def test_a_session_whose_outcome_is_no_verdict_stays_dropped(worlds: Worlds) -> None:
    world = worlds(judge=STEPS, at_least_one=True)
    await ended(world, "?")
    await world.judge.once()
    await world.journal.add_outcome(Outcome(session_id="session-1", reward=None))
    assert await world.judge.keep_one() == 0
    assert await world.journal.ready_count() == 0


async def test_the_loop_keeps_one_only_where_that_is_asked_for(worlds: Worlds) -> None:
    for at_least_one, count in ((False, 0), (True, 1)):
        world = worlds(judge=STEPS, at_least_one=at_least_one)
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


class Away:
    """A judge whose model cannot be reached until somebody says so."""

    here = False

    def __init__(self, settings: Any) -> None:
        self.settings = settings

    async def judge(self, turn: Turn, next_state: NextState) -> Judgement:
        if not Away.here:
            raise JudgeAway("the judge waits for its engine at http://127.0.0.1:1")
        return Judgement(turn_id=turn.turn_id, score=1.0)


async def test_turns_wait_while_the_judge_is_away_and_the_status_says_so(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("learner.judge.loop._PAUSE_AFTER_FAILURE", 0.02)
    world = worlds(judge="tests.learner.test_judge_loop:Away")
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


async def test_what_people_said_and_outcomes_are_settled_behind_any_number_of_turns_that_wait(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("learner.judge.loop._PAUSE_AFTER_FAILURE", 0.01)
    monkeypatch.setattr(Away, "here", False)
    world = worlds(judge="tests.learner.test_judge_loop:Away", judge_concurrency=2)
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
    left = sorted(turn.turn_id for turn in [*waiting, *disliked])
    loop = asyncio.create_task(world.judge.run())
    try:
        async with asyncio.timeout(20):
            while sorted(turn.turn_id for turn in await read(99)) != left:
                await asyncio.sleep(0.01)
            assert "waits for its engine" in world.progress.last_error  # what was settled does not hide it
            rewards = {one.turn_id: one.reward for one in await world.journal.ready_samples(9)}
            assert rewards == {liked.turn_id: 1.0, alone.turn_id: -1.0, by_tool.turn_id: -1.0, tested.turn_id: 0.5}
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
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("learner.judge.loop._PAUSE_AFTER_FAILURE", 0.01)
    world = worlds(judge="tests.learner.test_judge_loop:AwayForSome", judge_concurrency=2)
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


class Stuck:
    """A judge that never gets done with one turn, and counts how many it has at a time."""

    at_once = most = 0

    def __init__(self, settings: Any) -> None:
        Stuck.at_once = Stuck.most = 0

    async def judge(self, turn: Turn, next_state: NextState) -> Judgement:
        Stuck.at_once += 1
        Stuck.most = max(Stuck.most, Stuck.at_once)
        try:
            await (asyncio.Event().wait() if next_state.text == "never" else asyncio.sleep(0))
        finally:
            Stuck.at_once -= 1
        return Judgement(turn_id=turn.turn_id, score=1.0)


async def test_a_slow_turn_holds_up_no_other_and_few_are_in_memory(worlds: Worlds) -> None:
    world = worlds(judge="tests.learner.test_judge_loop:Stuck", judge_concurrency=2)
    slow = await world.says(1, "never")
    for number in range(2, 9):
        await world.says(number, "thanks")
    asked: list[int] = []
    read = world.journal.unjudged

    async def watched(limit: int, **options: Any) -> list[Turn]:
        asked.append(limit)
        return await read(limit, **options)

    world.journal.unjudged = watched  # type: ignore[method-assign]
    loop = asyncio.create_task(world.judge.run())
    try:
        async with asyncio.timeout(20):
            while len(left := await read(9)) > 1:
                await asyncio.sleep(0.01)
        assert [turn.turn_id for turn in left] == [slow.turn_id]
        assert await world.journal.ready_count() == 7
    finally:
        loop.cancel()
        await asyncio.gather(loop, return_exceptions=True)
    assert Stuck.most == 2 and max(asked) == 2
    assert Stuck.at_once == 0  # what was in work ended with the loop


async def test_every_judgement_says_by_whom_how_and_why(worlds: Worlds) -> None:
    world = worlds()
    by_rules = await world.says(1, "no bold please")
    by_feedback, by_comment = await world.says(2, ""), await world.says(3, "no lists")
    await world.journal.add_feedback(feedback(by_feedback, 1.0))
    await world.journal.add_feedback(feedback(by_comment, -1.0))
    selections = []
    await world.judge.once()
    for made in (by_rules, by_feedback, by_comment):
        judgement = await told(world, made)
        assert judgement.judge and judgement.prompt_version and judgement.reason
        selections.append((judgement.hint is not None, judgement.selection))
    assert selections == [(True, "rules"), (False, "none"), (True, "rules")]


async def test_at_most_judge_concurrency_turns_are_in_memory(worlds: Worlds) -> None:
    world = worlds(judge_concurrency=3)
    for number in range(1, 8):
        await world.says(number, "thanks")
    assert [await world.judge.once() for _ in range(4)] == [3, 3, 1, 0]


async def test_the_loop_goes_on_after_the_journal_failed(worlds: Worlds) -> None:
    world = worlds()
    await world.says(1, "thanks")
    read = world.journal.unjudged

    async def full(limit: int, **options: Any) -> list[Turn]:
        world.journal.unjudged = read  # type: ignore[method-assign]
        raise JournalError("journal.db: the disk is full")

    world.journal.unjudged = full  # type: ignore[method-assign]
    loop = asyncio.create_task(world.judge.run())
    try:
        async with asyncio.timeout(20):
            while "disk is full" not in world.progress.last_error:
                await asyncio.sleep(0.01)
            await world.judge.judged.wait()
            while world.progress.last_error:
                await asyncio.sleep(0.01)
    finally:
        loop.cancel()
    assert await world.journal.ready_count() == 1
