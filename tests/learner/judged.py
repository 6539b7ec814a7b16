"""Sessions for tests of the judge loop, a judge of steps, and what became of the turns."""

from __future__ import annotations

from typing import Any

from openclaw_rl.shared.records import Feedback, Judgement, NextState, Sample, Turn, Vote
from tests.learner.world import World

STEPS = "tests.learner.judged:Steps"


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


def feedback(turn: Turn, score: float | None, text: str = "") -> Feedback:
    return Feedback(turn_id=turn.turn_id, session_id=turn.session_id, score=score, text=text)


async def ended(world: World, *texts: str, session: str = "session-1") -> list[Turn]:
    """A session of turns with these next states that is over."""
    await world.journal.open_episode(session, "policy", "test")
    made = [
        await world.says(number, text, session_id=session, turn_id=f"turn_{session}_{number}")
        for number, text in enumerate(texts, start=1)
    ]
    await world.journal.end_episode(session, "session-done")
    return made


async def judgement_of(world: World, turn: Turn) -> Judgement:
    judgement = await world.journal.judgement(turn.turn_id)
    assert judgement is not None
    return judgement


async def only_sample(world: World) -> Sample:
    (sample,) = await world.journal.ready_samples(10)
    return sample


async def quarantine(world: World, turn: Turn) -> str:
    explained = await world.journal.explain(turn.turn_id)
    assert explained is not None
    assert await world.journal.ready_count() == 0
    return str(explained["quarantine"]["reason"])


HINTS = "tests.learner.judged:Hinting"


class Hinting:
    """A judge that gives a hint on every turn."""

    def __init__(self, settings: Any) -> None: ...

    async def judge(self, turn: Turn, next_state: NextState) -> Judgement:
        return Judgement(turn_id=turn.turn_id, score=1.0, hint=f"Mind this: {next_state.text}")
