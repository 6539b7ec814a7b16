"""Audits in the journal: which turns wait for one, and what a misaligned turn can no longer do."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from openclaw_rl.shared.journal import Journal
from openclaw_rl.shared.journal.migrations import APPLICATION_ID, MIGRATIONS, migrate
from openclaw_rl.shared.records import Audit, Turn, VersionSpan
from tests.shared.journal_records import judged, make_turn, sample_of, user_reply


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    opened = Journal(tmp_path / "journal.db")
    yield opened
    opened.close()


def audited(turn: Turn, *differences: float, verdict: str = "aligned", time: float = 1.0) -> Audit:
    return Audit(turn_id=turn.turn_id, version=0, verdict=verdict, differences=differences, time=time)  # type: ignore[arg-type]


def test_turns_that_may_train_wait_to_be_audited_once(journal: Journal) -> None:
    first, second = make_turn(), make_turn(versions=(VersionSpan(3, 0, 2), VersionSpan(4, 2, 4)))
    others = [
        make_turn(kind="side"),
        make_turn(status="aborted"),
        make_turn(untrainable="forced answer"),
        make_turn(response_ids=[], logprobs=[], versions=()),
    ]
    for turn in (first, second, *others):
        journal.record_turn(turn)
    assert journal.unaudited(10) == [(first.turn_id, 0), (second.turn_id, 4)]
    journal.pass_unaudited([first.turn_id])
    assert journal.unaudited(10) == [(second.turn_id, 4)]
    journal.add_audit(audited(second, 0.1, 0.2, 0.3, 0.4))
    assert journal.unaudited(10) == [] and journal.audit(first.turn_id) is None
    found = journal.audit(second.turn_id)
    assert found is not None and list(found.differences) == pytest.approx([0.1, 0.2, 0.3, 0.4])


def test_a_misaligned_turn_is_quarantined_for_good(journal: Journal) -> None:
    early, late = make_turn(), make_turn()
    for turn in (early, late):
        journal.record_turn(turn)
        journal.settle(user_reply(turn))
    journal.add_sample(sample_of(early))
    for turn in (early, late):
        journal.add_audit(audited(turn, 1.0, 1.0, 1.0, 1.0, verdict="misaligned"))
    journal.add_sample(sample_of(late))
    journal.add_judgement(judged(late))
    assert journal.ready_count() == 0
    for turn in (early, late):
        explained = journal.explain(turn.turn_id)
        assert explained is not None and "misaligned" in explained["quarantine"]["reason"]
        assert journal.aligned_count(0) == 0
        assert (explained["audit"]["mean"], explained["audit"]["largest"]) == (1.0, 1.0)


def test_a_skipped_audit_sets_nothing_aside(journal: Journal) -> None:
    turn = make_turn()
    journal.record_turn(turn)
    journal.add_audit(audited(turn, verdict="unavailable"))
    journal.settle(user_reply(turn))
    journal.add_sample(sample_of(turn))
    assert journal.ready_count() == 1 and journal.aligned_count(0) == 0
    explained = journal.explain(turn.turn_id)
    assert explained is not None and explained["quarantine"] is None and explained["audit"]["mean"] is None


def test_figures_are_over_the_tokens_of_the_latest_comparisons(journal: Journal) -> None:
    assert journal.audit_figures().verdicts == {} and journal.audit_figures().turns == 0
    for number in range(100):
        turn = make_turn()
        journal.record_turn(turn)
        largest = 5.0 if number == 99 else 0.5
        journal.add_audit(audited(turn, 0.0, 0.0, 0.0, largest, time=float(number)))
    turn = make_turn()
    journal.record_turn(turn)
    journal.add_audit(audited(turn, verdict="gone", time=1000.0))
    figures = journal.audit_figures()
    assert figures.verdicts == {"aligned": 100, "gone": 1}
    assert (figures.turns, figures.tokens, figures.largest, figures.time) == (64, 256, 5.0, 99.0)
    assert figures.p99 == 0.5 and figures.mean == pytest.approx((63 * 0.5 + 5.0) / 256)
    assert journal.aligned_count(0) == 100 and journal.aligned_count(1) == 0


def test_forgetting_a_session_forgets_its_audits(journal: Journal) -> None:
    waits, done = make_turn(), make_turn()
    for turn in (waits, done):
        journal.record_turn(turn)
    journal.add_audit(audited(done, 1.0))
    journal.forget("ses")
    assert journal.unaudited(10) == [] and journal.audit_figures().verdicts == {}


def test_a_journal_from_before_audits_is_taken_on(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "journal.db", isolation_level=None)
    migrate(connection, "old", MIGRATIONS[:1])
    assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    connection.close()
    journal = Journal(tmp_path / "journal.db")
    turn = make_turn()
    journal.record_turn(turn)
    assert journal.unaudited(10) == [(turn.turn_id, 0)]
    journal.close()
