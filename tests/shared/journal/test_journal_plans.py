"""Nothing that is done for each turn or each step reads a table that grows with the turns from end to end."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.shared.journal import Journal
from openclaw_rl.shared.journal.sqlite import Connection
from openclaw_rl.shared.records import Outcome, PolicyVersion
from tests.shared.journal_records import judged, make_turn, sample_of, thumb, user_reply

SMALL = ("judge_queue", "versions", "controls", "work", "line", "chain", "waiting", "json_each", "traffic", "CONSTANT")
"""Tables and subqueries that may be read from end to end."""
FEW = ("samples_ready", "episodes_open", "episodes_by_group", "audits_compared")
"""Indexes of few rows: of what waits or is open; and of attempts in groups and audits, of which only some are read."""


def test_no_query_of_a_turn_or_a_step_scans_what_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queries: dict[str, int] = {}

    def noted(connection: Connection, query: str, values: Any = ()) -> Any:
        queries.setdefault(" ".join(query.split()), len(values))
        return sqlite3.Connection.execute(connection, query, values)

    path = tmp_path / "journal.db"
    journal = Journal(path)
    monkeypatch.setattr(Connection, "execute", noted)
    journal.commit_version(PolicyVersion(number=0, parent=None, state="live", checkpoint=""))
    turn = make_turn()
    journal.record_turn(turn)
    journal.settle(user_reply(turn))
    journal.add_feedback(said := thumb(turn))
    journal.unjudged(8)
    journal.unjudged(8, explicit=True)
    journal.begin_work("judge", [turn.turn_id])
    journal.next_state(turn.turn_id)
    journal.feedback_for(turn.turn_id)
    journal.outcome(turn.session_id)
    journal.last_lesson(turn.turn_id)
    journal.add_judgement(judged(turn, feedback=said))
    journal.add_sample(sample_of(turn))
    samples = journal.ready_samples(8)
    journal.backlog()
    journal.lineage()
    ids = tuple(sample.sample_id for sample in samples)
    journal.commit_version(PolicyVersion(number=1, parent=0, state="candidate", checkpoint="1", sample_ids=ids))
    journal.set_version_state(1, "live")
    journal.waiting_count()
    journal.judged_episodes(turn.session_id)
    journal.recent_hints(8)
    journal.hint_mentions([1])
    journal.hints_after(0, 8)
    journal.accepted_answers(8)
    journal.accepted_attempts(0.5, 8)
    journal.idle_sessions(1e9)
    journal.active_sessions()
    journal.find_answers([turn.answer_key], turn.session_id)
    attempt = journal.begin_attempt("a1", "policy", task="sums", group="g", attempts=1)
    assert attempt is not None and journal.begin_attempt("a1", "policy", task="sums", group="g") is None
    journal.open_attempt("a1")
    journal.keep_open("a1")
    journal.group_members("g")
    step = make_turn(session_id="a1", episode=attempt.episode)
    journal.record_turn(step)
    journal.add_feedback(thumb(step))
    journal.add_outcome(Outcome(session_id="a1", episode=attempt.episode, reward=1.0, next_state="right", done=True))
    journal.attempt_of(step.turn_id)
    journal.outcome("a1", attempt.episode)
    journal.add_sample(sample_of(step))
    assert journal.waiting_groups() and journal.group_attempts("g") and journal.ready_samples(0, ["g"])
    journal.backlog(["g"])
    journal.waiting_rows()
    journal.ready_words(guesses=True, answered=True, turn_ids=[step.turn_id])
    journal.main_turns(step.turn_id)
    journal.status()
    journal.accounting()
    journal.audit_figures()
    journal.close()
    with sqlite3.connect(path) as connection:
        scans = {
            (query, step)
            for query, values in queries.items()
            if query.startswith(("SELECT", "WITH", "UPDATE", "DELETE"))
            for *_, step in connection.execute(f"EXPLAIN QUERY PLAN {query}", (1,) * values)
            if step.startswith("SCAN") and not step.startswith("SCAN (") and step.split()[1] not in SMALL
            if not step.endswith(FEW)
        }
    assert len(queries) > 60 and not {step for _, step in scans}, scans
