"""The judge loop: what each kind of signal makes of a turn, and that nothing is judged wrong, twice or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from typing import Any

import pytest

from openclaw_rl.learner.judge.loop import AFTER_WEAK, CONFIRMED, CORRECTION, REPLACED
from openclaw_rl.shared.errors import JournalError
from openclaw_rl.shared.records import (
    ImageSpan,
    Judgement,
    NextState,
    PolicyVersion,
    Sampling,
    Turn,
    VersionSpan,
    Vote,
)
from tests.learner.judged import HINTS, feedback, judgement_of, only_sample, quarantine
from tests.learner.world import World, Worlds


async def test_a_complaint_becomes_a_sample_with_a_hint(untrained: Worlds) -> None:
    world = untrained()
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


async def test_a_reward_on_a_filtered_answer_is_set_aside_and_a_hint_on_it_is_not(untrained: Worlds) -> None:
    world = untrained()
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
    ("sampling", "reason"), [(Sampling(top_k=20), "top_k 20"), (Sampling(temperature=0), "greedily")], ids=str
)
async def test_method_binary_learns_nothing_from_answers_without_a_ratio(
    untrained: Worlds, sampling: Sampling, reason: str
) -> None:
    world = untrained(method="binary")
    made = await world.says(1, "Thanks, but please no bold.", sampling=sampling)
    await world.judge.once()
    assert reason in await quarantine(world, made)
    await world.says(2, "Thanks, but please no bold.", sampling=Sampling(temperature=0.7))
    await world.judge.once()
    assert (await only_sample(world)).no_ratio == ""


async def test_a_tool_result_scores_and_hints_nothing(untrained: Worlds) -> None:
    world = untrained()
    await world.says(1, "Error: use plain sentences", role="tool")
    await world.judge.once()
    sample = await only_sample(world)
    assert (sample.reward, sample.hint) == (-1.0, None)


async def test_a_hint_from_a_tool_teaches_its_turn_and_is_no_remembered_wish(untrained: Worlds) -> None:
    world = untrained(judge=HINTS)
    await world.says(1, "no such file", role="tool")
    await world.judge.once()
    sample = await only_sample(world)
    assert (sample.reward, sample.hint) == (1.0, "Mind this: no such file")
    assert await world.journal.recent_hints(5) == []
    await world.says(2, "thanks, but shorter next time")
    await world.judge.once()
    assert await world.journal.recent_hints(5) == ["Mind this: thanks, but shorter next time"]


async def test_a_thumb_down_takes_the_hint_from_a_tool_and_a_comment_is_a_wish_of_its_own(untrained: Worlds) -> None:
    world = untrained(judge=HINTS)
    made = await world.says(1, "no such file", role="tool")
    await world.journal.add_feedback(feedback(made, -1.0))
    await world.judge.once()
    assert (await only_sample(world)).hint == "Mind this: no such file"
    assert await world.journal.recent_hints(5) == []
    await world.journal.add_feedback(feedback(made, -1.0, "no tables please"))
    await world.judge.once()
    assert (await only_sample(world)).hint == "no tables please."
    assert await world.journal.recent_hints(5) == ["no tables please."]


async def test_explicit_feedback_outranks_what_the_user_typed(untrained: Worlds) -> None:
    world = untrained()
    made = await world.says(1, "thanks")
    await world.journal.add_feedback(feedback(made, 1.0))
    await world.journal.add_feedback(feedback(made, -1.0))
    await world.judge.once()
    sample = await only_sample(world)
    assert (sample.reward, sample.explicit) == (-1.0, True)


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ([(1.0, "I like the tables"), (-1.0, "")], None),
        ([(-1.0, "no tables please"), (1.0, ""), (-1.0, "")], "no tables please."),
        ([(None, "no tables please"), (-1.0, "")], "no tables please."),
    ],
)
async def test_words_of_feedback_that_was_taken_back_are_no_wish(
    untrained: Worlds, said: list[tuple[float | None, str]], hint: str | None
) -> None:
    world = untrained()
    made = await world.says(1, "thanks")
    for score, text in said:
        await world.journal.add_feedback(feedback(made, score, text))
    await world.judge.once()
    sample = await only_sample(world)
    assert (sample.reward, sample.hint) == (-1.0, hint)


async def test_feedback_without_words_takes_the_hint_from_the_next_message(untrained: Worlds) -> None:
    world = untrained()
    made = await world.says(1, "no lists please")
    await world.journal.add_feedback(feedback(made, -1.0))
    await world.judge.once()
    sample = await only_sample(world)
    assert (sample.reward, sample.explicit, sample.hint) == (-1.0, True, "no lists please.")


async def test_a_message_that_comes_after_a_judged_thumb_gives_the_hint_too(untrained: Worlds) -> None:
    world = untrained()
    made = await world.says(1, "")
    await world.journal.add_feedback(feedback(made, -1.0))
    await world.judge.once()
    assert (await only_sample(world)).hint is None
    await world.journal.settle(NextState(turn_id=made.turn_id, role="user", text="no lists please"))
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
        (1.0, "great, thanks!", 1.0, None),
        (1.0, "Das war super, vielen Dank!", 1.0, None),
        (1.0, "Great, but please make it shorter next time.", 1.0, "please make it shorter next time."),
        (1.0, "", 1.0, None),
        (0.5, "", 0.5, None),
        (None, "too long", -1.0, "too long."),
        (None, "perfect", 1.0, None),
    ],
)
async def test_a_comment_is_read_like_a_message(
    untrained: Worlds, score: float | None, text: str, reward: float, hint: str | None
) -> None:
    world = untrained()
    made = await world.says(1, "")
    await world.journal.add_feedback(feedback(made, score, text))
    await world.judge.once()
    sample = await only_sample(world)
    assert (sample.reward, sample.hint, sample.explicit) == (reward, hint, True)


async def test_feedback_on_a_judged_turn_replaces_its_sample(untrained: Worlds) -> None:
    world = untrained()
    made = await world.says(1, "thanks")
    await world.judge.once()
    await world.journal.add_feedback(feedback(made, -1.0, "too long"))
    assert await world.judge.once() == 1
    sample = await only_sample(world)
    assert (sample.reward, sample.hint) == (-1.0, "too long.")
    assert await world.judge.once() == 0


async def learned(world: World, number: int = 1) -> Turn:
    """A turn that a version has learned from, as praised."""
    made = await world.says(number, "thanks")
    await world.judge.once()
    sample = await only_sample(world)
    await world.journal.commit_version(
        PolicyVersion(number=1, parent=0, state="live", checkpoint="x", sample_ids=[sample.sample_id])
    )
    return made


async def reason(world: World, made: Turn) -> str:
    judgement = await world.journal.judgement(made.turn_id)
    assert judgement is not None
    return judgement.reason


async def test_feedback_on_a_turn_that_was_learned_from_otherwise_makes_a_correction(untrained: Worlds) -> None:
    world = untrained()
    await world.versions.start()
    made = await learned(world)
    await world.journal.add_feedback(feedback(made, -1.0, "no bold please"))
    assert await world.judge.once() == 1
    sample = await only_sample(world)
    assert (sample.turn_id, sample.reward, sample.explicit, sample.hint) == (
        made.turn_id,
        -1.0,
        True,
        "no bold please.",
    )
    assert CORRECTION in await reason(world, made)
    assert await world.journal.recent_hints(5) == ["no bold please."]
    assert await world.judge.once() == 0


async def test_a_correction_is_withdrawn_by_the_last_word_and_learned_from_once(untrained: Worlds) -> None:
    world = untrained()
    await world.versions.start()
    made = await learned(world)
    await world.journal.add_feedback(feedback(made, -1.0))
    await world.judge.once()
    await world.journal.add_feedback(feedback(made, 1.0))  # as was learned: nothing is left to correct
    await world.judge.once()
    assert await world.journal.ready_count() == 0
    assert CONFIRMED in await reason(world, made)
    await world.journal.add_feedback(feedback(made, -0.5))
    await world.judge.once()
    sample = await only_sample(world)
    await world.journal.commit_version(
        PolicyVersion(number=2, parent=1, state="live", checkpoint="y", sample_ids=[sample.sample_id])
    )
    lesson = await world.journal.last_lesson(made.turn_id)
    assert lesson is not None and lesson.reward == -0.5
    await world.journal.add_feedback(feedback(made, -0.5))
    await world.judge.once()
    assert await world.journal.ready_count() == 0


async def test_a_turn_that_is_being_learned_from_waits(untrained: Worlds) -> None:
    world = untrained()
    made = await world.says(1, "thanks")
    world.in_flight.add(made.turn_id)
    assert await world.judge.once() == 0
    world.in_flight.clear()
    assert await world.judge.once() == 1


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"logprobs": [-1.0, float("nan"), -1.0]}, "logprobs"),
        ({"response_ids": [], "logprobs": []}, "empty"),
        ({"image_spans": [ImageSpan(0, 1)]}, "show 0 images, and 1 are placed"),
        ({"response_ids": [7] * 40, "logprobs": [-1.0] * 40, "versions": [VersionSpan(0, 0, 40)]}, "max_sample_tokens"),
    ],
)
async def test_a_turn_that_cannot_be_trained_on_is_quarantined_with_a_reason(
    untrained: Worlds, changes: dict[str, Any], reason: str
) -> None:
    world = untrained(max_sample_tokens=40)
    made = await world.says(1, "no bold please", **changes)
    await world.judge.once()
    assert reason in await quarantine(world, made)
    judgement = await world.journal.judgement(made.turn_id)
    assert judgement is not None and judgement.hint == "no bold please."  # the wish is remembered all the same


async def test_a_turn_of_several_versions_is_a_sample_with_all_its_spans(untrained: Worlds) -> None:
    world = untrained()
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


async def test_votes_that_all_fail_are_no_neutral_score(untrained: Worlds) -> None:
    world = untrained(judge="tests.learner.test_judge_loop:Failing")
    made = await world.says(1, "thanks")
    await world.judge.once()
    assert await quarantine(world, made) == "no vote succeeded: no connection"
    judgement = await world.journal.judgement(made.turn_id)
    assert judgement is not None and judgement.score is None


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


async def test_a_slow_turn_holds_up_no_other_and_few_are_in_memory(untrained: Worlds) -> None:
    world = untrained(judge="tests.learner.test_judge_loop:Stuck", judge_concurrency=2)
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


async def test_every_judgement_says_by_whom_how_and_why(untrained: Worlds) -> None:
    world = untrained()
    by_rules = await world.says(1, "no bold please")
    by_feedback, by_comment = await world.says(2, ""), await world.says(3, "no lists")
    await world.journal.add_feedback(feedback(by_feedback, 1.0))
    await world.journal.add_feedback(feedback(by_comment, -1.0))
    selections = []
    await world.judge.once()
    for made in (by_rules, by_feedback, by_comment):
        judgement = await judgement_of(world, made)
        assert judgement.judge and judgement.prompt_version and judgement.reason
        selections.append((judgement.hint is not None, judgement.selection))
    assert selections == [(True, "rules"), (False, "none"), (True, "rules")]


async def test_at_most_judge_concurrency_turns_are_in_memory(untrained: Worlds) -> None:
    world = untrained(judge_concurrency=3)
    for number in range(1, 8):
        await world.says(number, "thanks")
    assert [await world.judge.once() for _ in range(4)] == [3, 3, 1, 0]


async def test_the_loop_continues_after_the_journal_failed(untrained: Worlds) -> None:
    world = untrained()
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


def aside(made: Turn, text: str) -> NextState:
    """A next state from a request with another system text and other tools."""
    return NextState(turn_id=made.turn_id, role="user", text=text, next_turn_id="turn_aside", weak=True)


def reaction(made: Turn, text: str) -> NextState:
    """A next state from the turn's own conversation."""
    return NextState(turn_id=made.turn_id, role="user", text=text, next_turn_id="turn_own")


async def test_a_reaction_takes_the_place_of_weaker_evidence_and_of_its_sample(untrained: Worlds) -> None:
    world = untrained()
    made = await world.says(1, "")
    await world.journal.settle(aside(made, "No, that is wrong."))
    await world.judge.once()
    assert (await only_sample(world)).reward == -1.0
    await world.journal.settle(reaction(made, "Thanks, perfect."))
    assert await world.journal.ready_count() == 0, "nothing is learned from the weaker evidence meanwhile"
    assert await world.judge.once() == 1
    assert (await only_sample(world)).reward == 1.0
    judgement = await world.journal.judgement(made.turn_id)
    assert judgement is not None and judgement.next_turn_id == "turn_own" and REPLACED in judgement.reason
    assert await world.judge.once() == 0


async def test_a_sample_that_a_version_used_stays_used_when_its_next_state_is_replaced(untrained: Worlds) -> None:
    world = untrained()
    await world.versions.start()
    made = await world.says(1, "")
    await world.journal.settle(aside(made, "No, that is wrong."))
    await world.judge.once()
    sample = await only_sample(world)
    await world.journal.commit_version(
        PolicyVersion(number=1, parent=0, state="live", checkpoint="x", sample_ids=[sample.sample_id])
    )
    await world.journal.settle(reaction(made, "Thanks, perfect."))
    assert await world.judge.once() == 1
    assert await world.journal.ready_count() == 0
    lesson = await world.journal.last_lesson(made.turn_id)
    assert lesson is not None and lesson.sample_id == sample.sample_id
    judgement = await world.journal.judgement(made.turn_id)
    assert judgement is not None and judgement.score == 1.0 and AFTER_WEAK in judgement.reason


class Broken:
    """A judge with a fault of its own on one turn."""

    def __init__(self, settings: Any) -> None: ...

    async def judge(self, turn: Turn, next_state: NextState) -> Judgement:
        if next_state.text == "break":
            raise ZeroDivisionError("a fault that was not foreseen")
        return Judgement(turn_id=turn.turn_id, score=1.0)


async def test_a_turn_on_which_the_judge_breaks_is_set_aside_and_the_others_are_judged(
    untrained: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = untrained()
    monkeypatch.setattr(world.judge, "_judge", Broken(world.settings))
    broken = await world.says(1, "break")
    await world.says(2, "thanks")
    await world.judge.once()
    assert [sample.reward for sample in await world.journal.ready_samples(10)] == [1.0]
    assert await world.journal.unjudged(9) == []
    explained = await world.journal.explain(broken.turn_id)
    assert explained is not None
    assert "judging it failed (ZeroDivisionError: a fault that was not foreseen)" in explained["quarantine"]["reason"]


async def test_a_turn_that_changed_on_disk_is_set_aside_and_the_loop_continues(
    untrained: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openclaw_rl.learner.judge.loop._PAUSE_AFTER_FAILURE", 0.01)
    world = untrained()
    await world.says(1, "thanks")
    await world.says(2, "thanks")
    with contextlib.closing(sqlite3.connect(world.journal.sync.path, isolation_level=None)) as file:
        file.execute("UPDATE contents SET response_ids = x'10ffff' WHERE turn = 1")
    loop = asyncio.create_task(world.judge.run())
    try:
        async with asyncio.timeout(20):
            await world.judge.judged.wait()
    finally:
        loop.cancel()
    assert [sample.turn_id[-1] for sample in await world.journal.ready_samples(10)] == ["2"]
    (reason,) = (await world.journal.status())["quarantined"]
    assert "damaged" in reason
