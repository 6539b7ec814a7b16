"""SDPO: the teacher sees an accepted answer to the same prompt, and the hint only where there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from openclaw_rl.learner import attempts
from openclaw_rl.learner.attempts import accepted_attempts, with_attempts
from openclaw_rl.learner.guard.held_out import chosen_for_guard
from openclaw_rl.shared.records import Feedback, Outcome, Sample, Turn
from tests.learner.things import turn
from tests.learner.world import World

Worlds = Callable[..., World]
QUESTION = "How much is 7 and 5?"
PLAIN = "Seven and five make twelve."


def answered(content: Any, **more: Any) -> dict[str, Any]:
    return {"answer": {"role": "assistant", "content": content, **more}}


def shown(world: World, sample: Sample) -> str:
    (prompt,) = sample.hinted_prompts
    return world.prompter.tokenizer.decode(prompt)


async def test_an_accepted_second_try_is_shown_in_place_of_the_complaint(worlds: Worlds) -> None:
    world = worlds(method="sdpo", batch_size=2)
    await world.versions.start()
    taught = world.spy()
    first = await world.says(1, "no bold please", question=QUESTION)
    await world.says(2, "thanks", question="Once more?", parent_turn_id=first.turn_id, **answered(PLAIN))
    await world.says(3, "too long", question="How much is 2 and 2?")
    await world.judge_all()
    assert await world.learner.once()
    texts = {sample.turn_id: shown(world, sample) for sample in taught}
    assert len(texts) == 2, "the accepted try has no other attempt, and no hint"
    assert PLAIN in texts[first.turn_id] and "no bold" not in texts[first.turn_id]
    (other,) = (text for turn_id, text in texts.items() if turn_id != first.turn_id)
    assert "too long" in other and PLAIN not in other
    version = await world.journal.version(1)
    assert version is not None and version.metrics["samples/distill"] == 2 and version.metrics["loss/binary"] == 0


async def test_the_answer_to_the_next_question_is_no_second_try(worlds: Worlds) -> None:
    world = worlds(method="sdpo", batch_size=1)
    await world.versions.start()
    first = await world.says(1, "thanks! And how much is 3 and 3?", question=QUESTION)
    follows = {"question": "And how much is 3 and 3?", "parent_turn_id": first.turn_id}
    await world.says(2, "thanks", **follows, **answered("Six."))
    disliked = await world.says(5, "How much is 4 and 4?", question="How much is 1 and 1?")
    thumb = Feedback(turn_id=disliked.turn_id, session_id=disliked.session_id, score=-1.0)
    await world.journal.add_feedback(thumb)
    follows = {"question": "How much is 4 and 4?", "parent_turn_id": disliked.turn_id}
    await world.says(6, "thanks", **follows, **answered("Eight."))
    calling = await world.says(3, "error: no such tool", role="tool", question="Add 2 and 2.")
    await world.says(4, "thanks", question="Add it.", parent_turn_id=calling.turn_id, **answered("Four."))
    await world.judge_all()
    complaint = await world.journal.judgement(calling.turn_id)
    assert complaint is not None and complaint.score == -1.0, "a tool's failure"
    assert await accepted_attempts(world.journal) == {}


async def test_attempts_of_an_environment_are_shown_those_that_succeeded_and_never_themselves(worlds: Worlds) -> None:
    world = worlds(method="sdpo", batch_size=2)
    await world.versions.start()
    taught = world.spy()
    made: dict[float, Turn] = {}
    for number, reward in ((1, -1.0), (2, 1.0), (3, 0.5)):
        text = f"Attempt {number}."
        one = await world.says(number, "", question=QUESTION, session_id=f"attempt {number}", **answered(text))
        await world.journal.add_outcome(Outcome(session_id=one.session_id, reward=reward))
        made[reward] = one
    await world.judge_all()
    assert await world.learner.once()
    texts = {sample.turn_id: shown(world, sample) for sample in taught}
    assert texts.keys() == {made[-1.0].turn_id, made[0.5].turn_id}
    assert all("Attempt 2." in text for text in texts.values())


async def test_nothing_begins_while_no_attempt_succeeded_and_no_one_said_why(worlds: Worlds) -> None:
    world = worlds(method="sdpo", batch_size=2)
    await world.versions.start()
    for number in (1, 2, 3):
        one = await world.says(number, "", question=QUESTION, session_id=f"attempt {number}")
        await world.journal.add_outcome(Outcome(session_id=one.session_id, reward=-1.0))
    await world.judge_all()
    assert not await world.learner.once()
    assert world.progress.detail == "0 of 2, 3 with those that do not count"


async def test_answers_that_cannot_be_shown_are_passed_over(worlds: Worlds) -> None:
    world = worlds(method="sdpo")
    await world.versions.start()

    async def scored(number: int, score: float, **kind: Any) -> Turn:
        one = await world.says(number, "", question=QUESTION, session_id=f"attempt {number}", **kind)
        await world.journal.add_feedback(Feedback(turn_id=one.turn_id, session_id=one.session_id, score=score))
        await world.judge_all()
        return one

    async def hint(**changes: Any) -> str | None:
        samples, found = await world.journal.ready_samples(9), await accepted_attempts(world.journal)
        settings = world.settings.replace(**changes)
        return (await with_attempts(world.journal, settings, samples, found))[0].hint

    await scored(1, -1.0)
    await scored(2, 1.0, **answered(PLAIN))
    await scored(3, 1.0, **answered(""))
    await scored(4, 1.0, **answered("Let me see.", tool_calls=[{"id": "1", "name": "add", "arguments": "{}"}]))
    await scored(5, 0.5, **answered("Half right."))
    assert await hint() == attempts.SHOWN.format(answer=PLAIN)
    assert await hint(max_sample_tokens=16) is None, "too long together"
    held_out = next(number for number in range(50, 500) if chosen_for_guard(turn(number).turn_id, 0.125))
    await scored(held_out, 1.0, **answered("Held out."))
    assert await hint(guard=True) == attempts.SHOWN.format(answer=PLAIN)
    assert await hint() == attempts.SHOWN.format(answer="Held out."), "the newest, without a guard"
