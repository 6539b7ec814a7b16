"""Attempts in the journal: how they begin, and the place of a turn in one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.shared.journal import Attempted, Journal
from openclaw_rl.shared.journal.migrations import MIGRATIONS, migrate
from openclaw_rl.shared.records import Outcome, Timings, Turn
from tests.shared.journal_records import make_turn


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    opened = Journal(tmp_path / "journal.db")
    yield opened
    opened.close()


def step(journal: Journal, arrived: float, session_id: str = "attempt", **changes: Any) -> Turn:
    timings = Timings(arrived=arrived, first_token=None, finished=arrived + 1)
    turn = make_turn(session_id, f"step at {arrived}", timings=timings, **changes)
    journal.record_turn(turn)
    return turn


def test_the_steps_of_an_attempt_are_its_complete_main_turns_by_arrival(journal: Journal) -> None:
    episode = journal.begin_attempt("attempt", "policy", task="sums/17", group="run/17", attempts=8)
    assert episode == 0
    late = step(journal, 300.0)
    early = step(journal, 100.0)
    others = [step(journal, 150.0, kind="side"), step(journal, 160.0, status="aborted")]
    expected = Attempted("attempt", 0, "sums/17", "run/17", 8, 0)
    assert journal.attempt_of(early.turn_id) == expected
    found = journal.attempt_of(late.turn_id)
    assert found is not None and found.step_index == 1
    assert [journal.attempt_of(turn.turn_id) for turn in others] == [None, None]


def test_a_conversation_is_no_attempt(journal: Journal) -> None:
    assert journal.attempt_of(step(journal, 1.0, "talk").turn_id) is None
    assert journal.attempt_of("turn_unknown") is None


def test_a_session_has_one_open_episode_and_each_attempt_its_own_steps(journal: Journal) -> None:
    assert journal.begin_attempt("attempt", "policy") == 0
    assert journal.begin_attempt("attempt", "policy", task="another") is None
    step(journal, 1.0)
    journal.end_episode("attempt", "done")
    assert journal.begin_attempt("attempt", "policy", task="another") == 1
    second = journal.attempt_of(step(journal, 2.0, episode=1).turn_id)
    assert second is not None and (second.task, second.step_index) == ("another", 0)


def test_a_journal_from_before_attempts_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    before = tuple(one for one in MIGRATIONS if "environment" not in one)
    assert len(before) == len(MIGRATIONS) - 1
    connection = sqlite3.connect(path, isolation_level=None)
    migrate(connection, str(path), before)
    connection.execute("INSERT INTO sessions VALUES (1, 'talk', 'policy', 'header', 1.0, 2.0, '')")
    connection.execute("INSERT INTO episodes VALUES (1, 0, 1.0, NULL, '')")
    connection.close()
    journal = Journal(path)
    turn = step(journal, 1.0, "talk")
    journal.add_outcome(Outcome(session_id="talk", reward=0.5))
    assert journal.attempt_of(turn.turn_id) is None
    found = journal.outcome("talk")
    assert found is not None and found.reward == 0.5
    journal.close()
