"""The judge loop: what each kind of signal makes of a turn, and that nothing is judged wrong, twice or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from shared.errors import JournalError
from shared.records import (
    Feedback,
    ImageSpan,
    Judgement,
    NextState,
    Outcome,
    PolicyVersion,
    Sample,
    Sampling,
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


async def test_at_most_judge_concurrency_turns_are_in_memory(worlds: Worlds) -> None:
    world = worlds(judge_concurrency=3)
    for number in range(1, 8):
        await world.says(number, "thanks")
    assert [await world.judge.once() for _ in range(4)] == [3, 3, 1, 0]


async def test_the_loop_goes_on_after_the_journal_failed(worlds: Worlds) -> None:
    world = worlds()
    await world.says(1, "thanks")
    read = world.journal.unjudged

    async def full(limit: int) -> list[Turn]:
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
