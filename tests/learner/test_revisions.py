"""Second tries that people accepted, as answers to the first prompt."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.learner.guard.held_out import chosen_for_guard
from openclaw_rl.learner.revisions import accepted_revisions
from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.records import Judgement, NextState, Quarantine, Turn
from openclaw_rl.shared.settings.settings import Settings
from tests.learner.things import turn


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[AsyncJournal]:
    one = AsyncJournal(tmp_path / "journal.db")
    yield one
    await one.close()


HINT = "Please write shorter sentences."


def settings(**changes: Any) -> Settings:
    return Settings(**({"revisions": 4, "guard": False} | changes))


async def conversation(journal: AsyncJournal, number: int, *, first: float = -1.0, **second: Any) -> tuple[Turn, Turn]:
    """A complaint about turn `number`, a second try, and thanks for it."""
    one = turn(number, response_ids=[9, 10, 11])
    two = turn(
        number + 1, **({"parent_turn_id": one.turn_id, "prompt_ids": [5, 6, 7], "response_ids": [12, 13, 14]} | second)
    )
    for made, score, hint in ((one, first, HINT if first <= 0 else None), (two, 1.0, None)):
        await journal.record_turn(made)
        await journal.settle(NextState(turn_id=made.turn_id, role="user", text="."))
        await journal.add_judgement(Judgement(turn_id=made.turn_id, score=score, hint=hint))
    return one, two


async def test_an_accepted_second_try_answers_the_first_prompt(journal: AsyncJournal) -> None:
    one, two = await conversation(journal, 1)
    (made,) = await accepted_revisions(journal, settings())
    assert (made.origin, made.turn_id, made.reward, bool(made.no_ratio)) == ("revision", None, None, True)
    assert list(made.prompt_ids) == list(one.prompt_ids) and list(made.response_ids) == list(two.response_ids)
    assert len(made.logprobs) == len(made.response_ids)
    assert [list(prompt) for prompt in made.hinted_prompts] == [list(two.prompt_ids)], "the teacher saw the complaint"
    assert await accepted_revisions(journal, Settings()) == [], "the tiny policy needs none"


async def test_the_newest_come_first_and_no_more_than_wanted(journal: AsyncJournal) -> None:
    pairs = [await conversation(journal, number) for number in (1, 3, 5)]
    found = await accepted_revisions(journal, settings(revisions=2))
    assert [list(made.prompt_ids) for made in found] == [list(one.prompt_ids) for one, _ in reversed(pairs[1:])]


@pytest.mark.parametrize(
    "changes",
    [
        {"first": 1.0},
        {"finish_reason": "abort", "response_ids": [12, 13, 14]},
        {"response_ids": [12] * 40, "logprobs": [-1.0] * 40},
        {"parent_turn_id": None},
    ],
    ids=["no complaint", "cut", "too long", "no first try"],
)
async def test_other_answers_are_no_revisions(journal: AsyncJournal, changes: dict[str, Any]) -> None:
    await conversation(journal, 1, **changes)
    assert await accepted_revisions(journal, settings(max_sample_tokens=32)) == []


async def test_answers_in_quarantine_and_those_of_the_guard_are_not_taught(journal: AsyncJournal) -> None:
    _, two = await conversation(journal, 1)
    await journal.add_quarantine(Quarantine(turn_id=two.turn_id, reason="misaligned"))
    assert await accepted_revisions(journal, settings()) == []
    numbers = range(101, 141, 2)
    held = [number for number in numbers if chosen_for_guard(f"turn_{number + 1:032x}", 0.25)]
    assert held, "a quarter of twenty"
    for number in numbers:
        await conversation(journal, number)
    found = await accepted_revisions(journal, settings(revisions=64, guard=True, guard_held_back=0.25))
    assert len(found) == len(numbers) - len(held)
