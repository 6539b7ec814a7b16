"""Attempts in the journal: how they begin, and the place of a turn in one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from openclaw_rl.shared.errors import JournalError
from openclaw_rl.shared.journal import Attempted, Journal
from openclaw_rl.shared.journal.encoding import pack_record
from openclaw_rl.shared.journal.migrations import MIGRATIONS, migrate
from openclaw_rl.shared.records import NextState, Outcome, Role, Timings, Turn, now
from tests.shared.journal_records import judged, make_turn, thumb


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


def waiting(journal: Journal) -> list[str]:
    return [turn.turn_id for turn in journal.unjudged(100)]


def answered(journal: Journal, turn: Turn, role: Role = "tool") -> Turn:
    assert journal.settle(NextState(turn_id=turn.turn_id, role=role, text="42"))
    return turn


def three_steps(journal: Journal) -> list[Turn]:
    """An attempt whose first turn a tool answered, whose second a message in the user's role, and its last turn."""
    assert journal.begin_attempt("attempt", "policy") is not None
    return [answered(journal, step(journal, 1.0)), answered(journal, step(journal, 2.0), "user"), step(journal, 3.0)]


def test_the_steps_of_an_attempt_are_its_complete_main_turns_by_arrival(journal: Journal) -> None:
    attempt = journal.begin_attempt("attempt", "policy", task="sums/17", group="run/17", attempts=8)
    assert attempt is not None and attempt.episode == 0 and attempt == journal.open_attempt("attempt")
    late = step(journal, 300.0)
    early = step(journal, 100.0)
    others = [step(journal, 150.0, kind="side"), step(journal, 160.0, status="aborted")]
    expected = Attempted("attempt", 0, "sums/17", "run/17", 8, 0)
    assert journal.attempt_of(early.turn_id) == expected
    found = journal.attempt_of(late.turn_id)
    assert found is not None and found.step_index == 1
    assert [journal.attempt_of(turn.turn_id) for turn in others] == [None, None]


def test_an_answer_that_the_agent_lost_and_asked_for_again_is_no_step(journal: Journal) -> None:
    """The proxy ended after the first answer was recorded and before the agent had it."""
    assert journal.begin_attempt("attempt", "policy", task="sums/17", group="run/17", attempts=1) is not None
    lost, had = (step(journal, arrived, request_key=b"asked") for arrived in (1.0, 3.0))
    last = step(journal, 5.0, parent_turn_id=had.turn_id)
    journal.add_outcome(Outcome(session_id="attempt", reward=1.0, next_state="right", done=True))
    assert waiting(journal) == [had.turn_id, last.turn_id]
    assert journal.attempt_of(lost.turn_id) is None
    places = [journal.attempt_of(turn.turn_id) for turn in (had, last)]
    assert [place and place.step_index for place in places] == [0, 1]
    (attempt,) = journal.group_attempts("run/17")
    assert [one.turn_id for one in attempt.steps] == [had.turn_id, last.turn_id]
    assert journal.contradictions() == []


def test_answers_to_one_request_are_steps_where_the_agent_continued_them_or_asked_at_the_same_time(
    journal: Journal,
) -> None:
    assert journal.begin_attempt("attempt", "policy") is not None
    tried, again = (step(journal, arrived, request_key=b"asked") for arrived in (1.0, 3.0))
    both = [step(journal, arrived, request_key=b"later", parent_turn_id=tried.turn_id) for arrived in (5.0, 5.5)]
    places = [journal.attempt_of(turn.turn_id) for turn in (tried, again, *both)]
    assert [place and place.step_index for place in places] == [0, 1, 2, 3]


def test_a_conversation_is_no_attempt(journal: Journal) -> None:
    assert journal.attempt_of(step(journal, 1.0, "talk").turn_id) is None
    assert journal.attempt_of("turn_unknown") is None
    assert journal.open_attempt("talk") is None and journal.open_attempt("unknown") is None


def test_a_session_has_one_open_episode_and_each_attempt_its_own_steps(journal: Journal) -> None:
    first = journal.begin_attempt("attempt", "policy", task="one")
    assert journal.begin_attempt("attempt", "policy", task="another") is None
    assert first is not None and journal.begin_attempt("attempt", "policy", task="one") == first, "a lost answer"
    step(journal, 1.0)
    assert journal.begin_attempt("attempt", "policy", task="one") is None, "it is in use"
    journal.end_episode("attempt", "done")
    assert journal.open_attempt("attempt") is None
    again = journal.begin_attempt("attempt", "policy", task="another")
    assert again is not None and again.episode == 1
    second = journal.attempt_of(step(journal, 2.0, episode=1).turn_id)
    assert second is not None and (second.task, second.step_index) == ("another", 0)


def test_an_attempt_does_not_begin_within_a_conversation(journal: Journal) -> None:
    journal.open_episode("talk", "policy", "header")
    assert journal.begin_attempt("talk", "policy") is None
    journal.end_episode("talk", "done")
    assert journal.begin_attempt("talk", "policy") is not None
    assert journal.open_episode("talk", "policy", "header") == 1, "the one that is open"


def test_no_judge_gets_a_turn_before_the_outcome_not_even_with_a_persons_word(journal: Journal) -> None:
    first, second, last = three_steps(journal)
    journal.add_feedback(thumb(first))
    journal.add_feedback(thumb(last, text="why?"))
    assert waiting(journal) == []
    assert journal.accounting()["awaiting_outcome"] == 3 and journal.contradictions() == []
    journal.add_outcome(Outcome(session_id="attempt", reward=0.0))
    assert waiting(journal) == [first.turn_id, second.turn_id, last.turn_id]


def test_an_attempt_that_ends_without_an_outcome_goes_to_the_judge(journal: Journal) -> None:
    first, second, last = three_steps(journal)
    journal.add_feedback(thumb(last))
    journal.end_episode("attempt", "idle")
    assert waiting(journal) == [first.turn_id, second.turn_id, last.turn_id]


def test_nothing_in_an_attempt_is_a_persons_word(journal: Journal) -> None:
    _, second, _ = three_steps(journal)
    state = journal.next_state(second.turn_id)
    assert state is not None and state.role == "environment"
    assert journal.prompts_seen(10) == []
    journal.add_outcome(Outcome(session_id="attempt", reward=1.0))
    journal.add_judgement(judged(second, score=1.0))
    assert journal.accepted_answers(10) == []


def test_an_outcome_brings_the_last_next_state_and_ends_the_attempt(journal: Journal) -> None:
    first, second, last = three_steps(journal)
    outcome = Outcome(session_id="attempt", reward=7.5, next_state="2 of 3 tests pass", done=True)
    assert journal.add_outcome(outcome)
    state = journal.next_state(last.turn_id)
    assert state is not None
    assert (state.role, state.source, state.text) == ("environment", "outcome", "2 of 3 tests pass")
    assert waiting(journal) == [first.turn_id, second.turn_id, last.turn_id]
    known = journal.outcome("attempt", 0)
    assert known is not None and (known.reward, known.episode, known.done) == (7.5, 0, True)
    row = journal.session("attempt")
    assert row is not None and [(one.ended is None, one.reason) for one in row.episodes] == [(False, "outcome")]


def test_the_next_state_of_an_outcome_replaces_none_that_came_before(journal: Journal) -> None:
    _, second, last = three_steps(journal)
    answered(journal, last)
    journal.add_outcome(Outcome(session_id="attempt", reward=1.0, next_state="passed"))
    states = [journal.next_state(turn.turn_id) for turn in (second, last)]
    assert [state.text for state in states if state is not None] == ["42", "42"]


def test_the_same_outcome_twice_changes_nothing(journal: Journal) -> None:
    turns = three_steps(journal)
    outcome = Outcome(session_id="attempt", reward=1.0, detail="passed", next_state="passed", done=True)
    assert journal.add_outcome(outcome)
    for turn in turns:
        journal.add_judgement(judged(turn))
    assert not journal.add_outcome(msgspec.structs.replace(outcome, time=now() + 9))
    assert waiting(journal) == []
    found = journal.outcome("attempt")
    assert found is not None and found.time == outcome.time
    assert journal.add_outcome(msgspec.structs.replace(outcome, reward=0.0))
    assert waiting(journal) == [turn.turn_id for turn in turns], "another outcome is judged again"


def test_the_same_outcome_counts_again_for_turns_that_came_since(journal: Journal) -> None:
    journal.open_episode("talk", "policy", "header")
    outcome = Outcome(session_id="talk", reward=1.0, time=10.0)
    step(journal, 1.0, "talk")
    assert journal.add_outcome(outcome) and not journal.add_outcome(outcome)
    later = step(journal, 20.0, "talk")
    assert journal.add_outcome(msgspec.structs.replace(outcome, time=30.0))
    assert later.turn_id in waiting(journal)


def test_the_same_outcome_twice_changes_nothing_though_the_clock_was_set_back(journal: Journal) -> None:
    journal.open_episode("talk", "policy", "header")
    step(journal, 1000.0, "talk")
    outcome = Outcome(session_id="talk", reward=1.0, time=10.0)
    assert journal.add_outcome(outcome) and not journal.add_outcome(msgspec.structs.replace(outcome, time=11.0))
    step(journal, 5.0, "talk")
    assert journal.add_outcome(msgspec.structs.replace(outcome, time=12.0))


def test_an_outcome_is_about_its_own_attempt_alone(journal: Journal) -> None:
    dead = three_steps(journal)
    journal.end_episode("attempt", "idle")
    for turn in dead:
        journal.add_judgement(judged(turn))
    assert journal.begin_attempt("attempt", "policy") is not None
    alive = answered(journal, step(journal, 9.0, episode=1))
    assert journal.judged_episodes("attempt") == [0, 1]
    late = Outcome(session_id="attempt", reward=-1.0, episode=0, next_state="failed", done=True)
    journal.add_outcome(late)
    assert waiting(journal) == [turn.turn_id for turn in dead]
    state = journal.next_state(dead[-1].turn_id)
    assert state is not None and state.text == "failed"
    assert journal.outcome("attempt", 1) is None and journal.outcome("attempt", 0) == late
    assert journal.open_attempt("attempt") is not None, "the other attempt is under way"
    journal.add_outcome(Outcome(session_id="attempt", reward=1.0))
    assert alive.turn_id in waiting(journal), "without a number it is about the latest"
    with pytest.raises(JournalError, match="no episode 2"):
        journal.add_outcome(Outcome(session_id="attempt", reward=1.0, episode=2))


def test_an_outcome_without_a_verdict_settles_every_step(journal: Journal) -> None:
    turns = three_steps(journal)
    journal.add_outcome(Outcome(session_id="attempt", reward=None, detail="the sandbox died", done=True))
    assert waiting(journal) == [turn.turn_id for turn in turns]


def test_of_an_attempt_that_is_only_measured_no_outcome_is_kept(journal: Journal) -> None:
    attempt = journal.begin_attempt("attempt", "policy", train=False)
    assert attempt is not None and not attempt.train
    journal.add_outcome(Outcome(session_id="attempt", reward=1.0, done=True))
    assert journal.outcome("attempt") is None and journal.open_attempt("attempt") is None


def test_a_forgotten_attempt_is_another_one_than_the_next_of_its_number(journal: Journal) -> None:
    first = journal.begin_attempt("attempt", "policy")
    step(journal, 1.0)
    journal.forget("attempt")
    assert journal.open_attempt("attempt") is None
    second = journal.begin_attempt("attempt", "policy")
    assert first is not None and second is not None
    assert (first.episode, second.episode) == (0, 0) and first.started != second.started


def test_a_forgotten_episode_takes_its_outcome_along(journal: Journal) -> None:
    three_steps(journal)
    journal.add_outcome(Outcome(session_id="attempt", reward=1.0, done=True))
    journal.begin_attempt("attempt", "policy")
    step(journal, 9.0, episode=1)
    other = Outcome(session_id="attempt", reward=0.0, episode=1)
    journal.add_outcome(other)
    journal.forget("attempt", 1)
    found = journal.outcome("attempt")
    assert found is not None and found.episode == 0 and journal.outcome("attempt", 1) is None


def test_the_members_of_a_group_say_what_they_were_begun_with(journal: Journal) -> None:
    for member in ("one", "two"):
        journal.begin_attempt(member, "policy", task="sums/17", group="run/17", attempts=8)
    assert journal.group_members("run/17") == [("sums/17", 8)]
    assert journal.group_members("other") == []
    row = journal.session("one")
    assert row is not None
    assert [(one.environment, one.task, one.group, one.attempts) for one in row.episodes] == [
        (True, "sums/17", "run/17", 8)
    ]


def test_a_journal_from_before_attempts_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    before = MIGRATIONS[: next(number for number, one in enumerate(MIGRATIONS) if "environment" in one)]
    connection = sqlite3.connect(path, isolation_level=None)
    migrate(connection, str(path), before)
    connection.execute("INSERT INTO sessions VALUES (1, 'talk', 'policy', 'header', 1.0, 2.0, '')")
    connection.execute("INSERT INTO episodes VALUES (1, 0, 1.0, NULL, '')")
    old = pack_record(Outcome(session_id="talk", reward=0.5, time=5.0))
    connection.execute("INSERT INTO outcomes (session, body) VALUES (1, ?)", (old,))
    connection.close()
    journal = Journal(path)
    turn = step(journal, 1.0, "talk")
    assert journal.attempt_of(turn.turn_id) is None and journal.open_attempt("talk") is None
    for episode in (None, 0, 1):
        found = journal.outcome("talk", episode)
        assert found is not None and found.reward == 0.5
    assert journal.add_outcome(Outcome(session_id="talk", reward=0.5)) and waiting(journal) == [turn.turn_id]
    journal.close()
