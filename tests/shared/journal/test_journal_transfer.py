"""A session imported at once, and what export asks for."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from openclaw_rl.shared.errors import JournalError
from openclaw_rl.shared.journal import Journal
from openclaw_rl.shared.objective.importance_ratio import IMPORTED
from openclaw_rl.shared.records import NextState, Sampling
from tests.shared.journal_records import judged, make_turn, sample_of, thumb, user_reply


def test_a_session_is_stored_whole_and_once(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.db")
    first = make_turn("import-1", sampling=Sampling(imported=True))
    second = make_turn("import-1", parent_turn_id=first.turn_id, sampling=Sampling(imported=True))
    assert journal.import_session([first, second], [user_reply(first)], [thumb(second)])
    row = journal.session("import-1")
    assert row is not None
    assert (row.main, row.settled) == (2, 1)
    assert [episode.reason for episode in row.episodes] == ["imported"]
    assert [turn.turn_id for turn in journal.unjudged(9)] == [first.turn_id, second.turn_id]
    assert journal.turn_ids("import-1") == [first.turn_id, second.turn_id]
    assert not journal.import_session([first])
    assert journal.status()["turns"]["total"] == 2
    journal.close()


def test_nothing_is_stored_of_a_session_that_breaks_off(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.db")
    turn = make_turn("import-1")
    with pytest.raises(JournalError, match="has no turn turn_unknown"):
        journal.import_session([turn], [NextState(turn_id="turn_unknown", role="user", text="no")])
    assert journal.session("import-1") is None
    assert journal.status()["turns"]["total"] == 0
    assert journal.import_session([turn], [user_reply(turn)])
    journal.close()


def test_sessions_are_listed_oldest_first_from_a_time_on(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.db")
    for number in range(3):
        turn = make_turn(f"s{number}")
        when = msgspec.structs.replace(turn.timings, arrived=100.0 * number, finished=100.0 * number)
        journal.record_turn(msgspec.structs.replace(turn, timings=when))
    assert journal.session_ids() == ["s0", "s1", "s2"]
    assert journal.session_ids(100.0) == ["s1", "s2"]
    assert journal.turn_ids("unknown") == []
    journal.close()


def test_an_imported_turn_is_not_audited_and_its_sample_has_no_ratio(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.db")
    imported, sampled = make_turn(sampling=Sampling(imported=True)), make_turn()
    for turn in (imported, sampled):
        journal.record_turn(turn)
        journal.add_sample(sample_of(turn))
        journal.add_judgement(judged(turn))
    assert [turn_id for turn_id, _ in journal.unaudited(9)] == [sampled.turn_id]
    reasons = {sample.turn_id: sample.no_ratio for sample in journal.ready_samples(9)}
    assert reasons == {imported.turn_id: IMPORTED, sampled.turn_id: ""}
    explained = journal.explain(imported.turn_id)
    assert explained is not None
    assert explained["no_ratio"] == IMPORTED
    journal.close()
