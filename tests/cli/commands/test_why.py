"""The story of a turn, from what the journal explains of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from openclaw_rl.proxy.routes.story import story
from openclaw_rl.shared.journal import Journal
from openclaw_rl.shared.records import NextState, Outcome, Role, Turn
from tests.shared.journal_records import make_turn

AWAITED = "It waits for the outcome; no judge gets it before."


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    opened = Journal(tmp_path / "journal.db")
    yield opened
    opened.close()


def lines_of(journal: Journal, turn: Turn) -> list[str]:
    explained = journal.explain(turn.turn_id)
    assert explained is not None
    return list(story(explained))


def answered(journal: Journal, turn: Turn, role: Role) -> Turn:
    journal.record_turn(turn)
    journal.settle(NextState(turn_id=turn.turn_id, role=role, text="exit code 1"))
    return turn


def test_a_step_of_an_attempt_under_way_waits_for_its_outcome(journal: Journal) -> None:
    for session_id in ("first", "second"):
        journal.begin_attempt(session_id, "policy", task="sums/17", group="run/17", attempts=2)
    step = answered(journal, make_turn("first"), "tool")
    lines = lines_of(journal, step)
    assert AWAITED in lines and "It has not been judged." not in lines
    assert "It is step 1 of attempt 1 of 2 at sums/17, whose outcome is still to come." in lines
    journal.add_outcome(Outcome(session_id="first", episode=0, reward=1.0))
    lines = lines_of(journal, step)
    assert AWAITED not in lines and "It waits for a judge." in lines
    assert "It is step 1 of attempt 1 of 2 at sums/17, and has no reward to compare with the others." in lines


def test_of_a_conversation_only_what_an_announced_outcome_is_for_waits_for_it(journal: Journal) -> None:
    journal.open_episode("talk", "policy", "header")
    by_tool, by_person, lost = make_turn("talk"), make_turn("talk"), make_turn("talk", status="aborted")
    journal.expect_outcome("talk")
    assert AWAITED in lines_of(journal, answered(journal, by_tool, "tool"))
    assert "It waits for a judge." in lines_of(journal, answered(journal, by_person, "user"))
    journal.record_turn(lost)
    assert AWAITED not in lines_of(journal, lost) and "It has not been judged." in lines_of(journal, lost)
    journal.end_episode("talk", "idle")
    assert AWAITED not in lines_of(journal, by_tool)
