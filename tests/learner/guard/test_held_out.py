"""The accepted answers that the guard keeps, and the time for which their acceptance stands."""

from __future__ import annotations

from openclaw_rl.learner.guard.held_out import REASON, WINDOW, hold_back, is_held_back, set_aside, standing
from openclaw_rl.shared.journal.views import TurnReaction
from openclaw_rl.shared.records import Feedback, Sample
from tests.learner.world import Worlds


def sample(number: int, *, reward: float | None = 1.0, hint: str | None = None) -> Sample:
    return Sample(
        sample_id=f"sample_{number}",
        turn_id=f"turn_{number:032x}",
        policy="policy",
        origin="turn",
        prompt_ids=[1],
        response_ids=[2],
        logprobs=[-1.0],
        versions=[],
        reward=reward,
        hint=hint,
    )


def test_a_share_of_the_accepted_is_kept_and_always_the_same_ones() -> None:
    kept = {number for number in range(4000) if is_held_back(sample(number), 0.125)}
    assert 420 < len(kept) < 580
    assert kept == {number for number in range(4000) if is_held_back(sample(number), 0.125)}
    assert kept <= {number for number in range(4000) if is_held_back(sample(number), 0.25)}
    assert not any(is_held_back(sample(number), 0.0) for number in range(100))


def test_complaints_hints_and_unrewarded_turns_are_never_kept() -> None:
    for number in range(100):
        assert not is_held_back(sample(number, reward=-1.0), 1.0)
        assert not is_held_back(sample(number, reward=None), 1.0)
        assert not is_held_back(sample(number, hint="no bold"), 1.0)


def said(number: int, score: float, *, reasoned: bool = False, held: bool = False, aside: bool = False) -> TurnReaction:
    return TurnReaction(f"turn_{number}", score, reasoned, held, held or aside)


def test_held_back_answers_come_first_and_set_aside_ones_not_at_all() -> None:
    before = [said(4, 1.0), said(3, 1.0, held=True), said(2, 1.0, aside=True), said(1, 0.0)]
    assert standing(before) == ["turn_3", "turn_4"]


def test_an_acceptance_falls_when_later_complaints_outnumber_it() -> None:
    before = [said(9, -1.0), said(8, -1.0), said(7, -1.0), *(said(number, 1.0) for number in range(6, 0, -1))]
    assert standing(before) == ["turn_4", "turn_3", "turn_2", "turn_1"]
    assert standing([*before[:3], *before[6:]]) == ["turn_1"]


def test_a_user_who_praised_and_now_complains_is_followed_within_a_window() -> None:
    praise = [said(number, 1.0) for number in range(40, 0, -1)]
    left = []
    for complaints in (0, 8, 16, 24):
        newest = [said(1000 + number, -1.0) for number in range(complaints)]
        left.append(len(standing([*newest, *praise][:WINDOW])))
    assert left == [32, 17, 1, 0]


def test_reasons_in_the_batch_itself_count_and_bare_complaints_do_not() -> None:
    before = [said(number, 1.0) for number in range(12, 0, -1)]
    bare = [said(100 + number, -1.0) for number in range(8)]
    reasoned = [said(100 + number, -1.0, reasoned=True) for number in range(8)]
    assert len(standing(before, bare)) == 12
    assert len(standing(before, reasoned)) == 5


async def test_only_answers_that_people_accepted_are_kept_and_the_reason_can_be_read(untrained: Worlds) -> None:
    world = untrained()
    await world.says(1, "thanks")
    await world.says(2, "exit code 0", role="tool")
    praised = await world.says(3, "")
    await world.journal.add_feedback(Feedback(turn_id=praised.turn_id, session_id=praised.session_id, score=1.0))
    await world.judge_all()
    ready = await world.journal.ready_samples(10)
    kept, held = await hold_back(world.journal, [sample(1), sample(2), sample(3)], 1.0)
    assert [one.sample_id for one in kept] == ["sample_2"]
    assert len(ready) == 3 and await world.journal.ready_count() == 3
    await set_aside(world.journal, [*held, "turn_forgotten"])
    assert await world.journal.ready_count() == 1
    explained = await world.journal.explain(praised.turn_id)
    assert explained is not None and explained["quarantine"]["reason"] == REASON
    assert (await world.journal.status())["quarantined"] == {REASON: 2}


async def test_the_journal_separates_reactions_before_a_batch_from_those_to_it(untrained: Worlds) -> None:
    world = untrained(judge_concurrency=1)  # judgements in the order of the turns
    for number, text in enumerate(["thanks", "no bold please", "no", "exit code 0", "thanks", "thanks"], start=1):
        await world.says(number, text, role="tool" if number == 4 else "user")
    await world.judge_all()
    turns = [f"turn_{number:032x}" for number in range(1, 7)]
    await set_aside(world.journal, turns[:1])
    of_batch, before = await world.journal.reactions(turns[4:], 10)
    assert [one.turn_id for one in of_batch] == [turns[5], turns[4]]
    earlier = {one.turn_id: (one.score, one.reasoned, one.held_back) for one in before}
    assert earlier == {turns[2]: (-1.0, False, False), turns[1]: (-1.0, True, False), turns[0]: (1.0, False, True)}
    assert [one.turn_id for one in (await world.journal.reactions([], 2))[1]] == [turns[5], turns[4]]
