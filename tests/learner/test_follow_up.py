"""The raw follow-up as the teacher's context: every message of a person teaches, whatever a judge made of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from openclaw_rl.learner.judge.signals import LONGEST_FOLLOW_UP
from openclaw_rl.shared.records import Feedback, NextState
from tests.learner.test_attempts import shown
from tests.learner.test_loop import tell
from tests.learner.world import World

Worlds = Callable[..., World]


async def test_each_message_of_a_person_is_what_the_teacher_reads(worlds: Worlds) -> None:
    world = worlds(method="follow-up", batch_size=4)
    await world.versions.start()
    taught = world.spy()
    texts = ["no bold please", "thanks", "Bitte ohne Fettdruck, das liest sich schlecht.", "And how much is 3 and 4?"]
    await tell(world, 1, texts)
    await world.judge_all()
    assert await world.journal.ready_count() == 4, "one that the rules cannot read is among them"
    assert await world.learner.once()
    assert all(any(text in shown(world, sample) for sample in taught) for text in texts)
    version = await world.journal.version(1)
    assert version is not None
    assert (version.metrics["samples/distill"], version.metrics["samples/binary"]) == (4, 0)
    assert version.metrics["samples/policy"] == 4, "an advantage for each sampled token"


async def test_results_of_tools_and_silence_are_no_follow_ups(worlds: Worlds) -> None:
    world = worlds(method="follow-up", batch_size=1)
    await world.versions.start()
    await world.says(1, "no such file", role="tool")
    silent = await world.says(2, "")
    await world.journal.add_feedback(Feedback(turn_id=silent.turn_id, session_id=silent.session_id, score=-1.0))
    await world.judge_all()
    assert not await world.learner.once()
    commented = await world.says(3, "")
    comment = Feedback(turn_id=commented.turn_id, session_id=commented.session_id, score=None, text="shorter")
    await world.journal.add_feedback(comment)
    await world.judge_all()
    assert [sample.hint for sample in await world.journal.ready_samples(9)] == [None, None, "shorter"]
    assert await world.learner.once()


@pytest.mark.parametrize("score", [-1.0, 1.0])
async def test_a_message_after_a_thumb_is_one_too(worlds: Worlds, score: float) -> None:
    world = worlds(method="follow-up", batch_size=1)
    await world.versions.start()
    one = await world.says(1, "")
    await world.journal.add_feedback(Feedback(turn_id=one.turn_id, session_id=one.session_id, score=score))
    await world.judge_all()
    await world.journal.settle(NextState(turn_id=one.turn_id, role="user", text="no bold please"))
    await world.judge_all()
    (sample,) = await world.journal.ready_samples(9)
    assert (sample.hint, sample.reward) == ("no bold please", score)


@pytest.mark.parametrize(("score", "text"), [(1.0, ""), (-1.0, "Plain text, please.")])
async def test_a_message_that_was_learned_is_not_learned_again_for_a_thumb_or_a_comment(
    worlds: Worlds, score: float, text: str
) -> None:
    world = worlds(method="follow-up", batch_size=1)
    await world.versions.start()
    await tell(world, 1, ["no bold please"])
    assert await world.learner.once()
    (session_id,) = await world.journal.session_ids()
    turn_id = f"turn_{1:032x}"
    await world.journal.add_feedback(Feedback(turn_id=turn_id, session_id=session_id, score=score, text=text))
    await world.judge_all()
    assert await world.journal.ready_count() == 0
    assert (await world.journal.judgement(turn_id)).score == score  # type: ignore[union-attr]


async def test_a_long_message_is_cut(worlds: Worlds) -> None:
    world = worlds(method="follow-up")
    await world.versions.start()
    await tell(world, 1, ["word " * 2000])
    (sample,) = await world.journal.ready_samples(9)
    assert sample.hint is not None and len(sample.hint) == LONGEST_FOLLOW_UP


async def test_other_methods_still_need_a_verdict(worlds: Worlds) -> None:
    world = worlds(method="topk")
    await world.versions.start()
    await tell(world, 1, ["Bitte ohne Fettdruck, das liest sich schlecht."])
    assert await world.journal.ready_count() == 0
