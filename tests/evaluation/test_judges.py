from __future__ import annotations

from collections import Counter

from openclaw_rl.evaluation.judges import IRRELEVANT_HINTS, Irrelevant, Placebo
from openclaw_rl.learner.judge.rules.rules import read_message
from openclaw_rl.shared.hooks import resolve
from openclaw_rl.shared.records import NextState
from openclaw_rl.shared.settings.settings import Settings
from tests.learner.things import turn

COMPLAINT = "Please leave the bold away and tell me in ordinary sentences."


async def test_the_placebo_gives_scores_that_occurred_without_regard_to_what_was_said() -> None:
    judge = resolve("openclaw_rl.evaluation.judges:Placebo")(Settings(seed=3))
    assert isinstance(judge, Placebo)
    reactions = [COMPLAINT, "Thanks!"] * 100
    judged = [
        await judge.judge(turn(number), NextState(turn_id=turn(number).turn_id, role="user", text=text))
        for number, text in enumerate(reactions)
    ]
    assert all(judgement.hint is None for judgement in judged)
    complained = Counter(judgement.score for judgement in judged[::2])
    thanked = Counter(judgement.score for judgement in judged[1::2])
    assert set(complained) == set(thanked) == {-1.0, 1.0}
    for counted in (complained, thanked):
        assert 25 < counted[1.0] < 75


async def test_irrelevant_hints_stand_where_hints_were_and_scores_stay() -> None:
    judge = Irrelevant(Settings(seed=3))
    state = NextState(turn_id=turn(1).turn_id, role="user", text=COMPLAINT)
    complained = await judge.judge(turn(1), state)
    thanked = await judge.judge(turn(2), NextState(turn_id=turn(2).turn_id, role="user", text="Thanks!"))
    assert complained.score == -1.0
    assert complained.hint in IRRELEVANT_HINTS
    assert (thanked.score, thanked.hint) == (1.0, None)


def test_an_irrelevant_hint_is_no_wish_to_the_judge_by_rules() -> None:
    for hint in IRRELEVANT_HINTS:
        assert read_message(hint).hint is None
