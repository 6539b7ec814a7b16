"""Counts that are kept with the writes are those that counting gives."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from openclaw_rl.shared.journal import Journal
from openclaw_rl.shared.journal.migrations import MIGRATIONS, migrate
from openclaw_rl.shared.records import Audit, NextState, PolicyVersion, Quarantine
from tests.shared.journal_records import judged, make_turn, sample_of, thumb, user_reply

COUNTED = """
SELECT 'turns' AS name, kind || ' ' || status AS key, count(*) FROM turns GROUP BY key
UNION ALL SELECT 'sessions', '', count(*) FROM sessions
UNION ALL SELECT 'next states', role, count(*) FROM next_states GROUP BY role
UNION ALL SELECT 'interactions', CASE WHEN turn > (SELECT count FROM tallies WHERE name = 'last turn before')
  THEN 'since' ELSE '' END AS key, count(*) FROM next_states JOIN turns ON turns.id = turn
  WHERE role = 'user' AND kind = 'main' GROUP BY key
UNION ALL SELECT 'feedback', '', count(*) FROM feedback
UNION ALL SELECT 'judgements', '', count(*) FROM judgements
UNION ALL SELECT 'samples', state, count(*) FROM samples GROUP BY state
UNION ALL SELECT 'quarantined', reason, count(*) FROM quarantines GROUP BY reason
UNION ALL SELECT 'audits', verdict, count(*) FROM audits GROUP BY verdict
UNION ALL SELECT 'versions', state, count(*) FROM versions GROUP BY state
UNION ALL SELECT 'places', place, count(*) FROM turn_places GROUP BY place
UNION ALL SELECT 'set aside', reason, count(*) FROM turn_places WHERE place = 'quarantined' GROUP BY reason
"""
KEPT = "SELECT name, key, count FROM tallies WHERE name != 'last turn before'"


def counts(path: Path, query: str) -> list[tuple[str, str, int]]:
    with sqlite3.connect(path) as connection:
        return sorted(row for row in connection.execute(query) if row[2])


def a_history(path: Path) -> Journal:
    """A journal in which every table was written, replaced and deleted."""
    journal = Journal(path)
    journal.commit_version(PolicyVersion(number=0, parent=None, state="live", checkpoint=""))
    turns = [make_turn(f"ses{number % 3}", kind="side" if number == 8 else "main") for number in range(9)]
    for turn in turns:
        journal.open_episode(turn.session_id, "policy", "test")
        journal.record_turn(turn)
    weak = NextState(turn_id=turns[0].turn_id, role="tool", text="exit code 0", weak=True)
    journal.settle(weak)
    for turn in turns[:7]:
        journal.settle(user_reply(turn))
    journal.add_feedback(thumb(turns[7]))
    samples = [sample_of(turn) for turn in turns[:5]]
    for turn, sample in zip(turns, samples, strict=False):
        journal.add_judgement(judged(turn))
        journal.add_sample(sample)
    journal.add_judgement(judged(turns[5], score=None))
    for reason in ("no vote", "still none"):
        journal.add_quarantine(Quarantine(turn_id=turns[5].turn_id, reason=reason))
    for number, state in ((1, "live"), (2, "live"), (3, "rejected")):
        ids = [samples[number].sample_id]
        journal.commit_version(
            PolicyVersion(number=number, parent=min(number - 1, 2), state=state, checkpoint="", sample_ids=ids)
        )
    journal.set_version_state(1, "live")
    for verdict in ("unavailable", "aligned"):
        journal.add_audit(Audit(turn_id=turns[0].turn_id, version=0, verdict=verdict, differences=[0.0]))
    journal.add_audit(Audit(turn_id=turns[4].turn_id, version=0, verdict="misaligned", differences=[1.0]))
    journal.settle(NextState(turn_id=turns[7].turn_id, role="tool", text="exit code 0"))
    journal.expect_outcome("ses1")
    journal.end_episode("ses1", "done")
    journal.open_episode("ses1", "policy", "test")
    journal.expect_outcome("ses1")
    return journal


def test_tallies_are_what_counting_gives_through_rollback_and_forgetting(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = a_history(path)
    assert counts(path, KEPT) == counts(path, COUNTED) and journal.contradictions() == []
    assert journal.accounting()["rolled_back"] == 1 == journal.accounting()["consumed"]
    journal.forget("ses0")
    assert counts(path, KEPT) == counts(path, COUNTED) and journal.contradictions() == []
    with journal.database.writing() as connection:
        connection.execute("UPDATE places SET place = 'ready'")
    assert any("counted in a wrong place" in fault for fault in journal.contradictions())
    journal.close()


def test_a_journal_of_an_older_version_is_counted_once(tmp_path: Path) -> None:
    source, older = tmp_path / "journal.db", tmp_path / "older.db"
    a_history(source).close()
    connection = sqlite3.connect(older, isolation_level=None)
    migrate(connection, str(older), MIGRATIONS[:16])
    connection.execute("ATTACH ? AS new", (str(source),))
    for (table,) in connection.execute("SELECT name FROM main.sqlite_master WHERE type = 'table'").fetchall():
        columns = ", ".join(row[1] for row in connection.execute(f"PRAGMA main.table_info({table})"))
        connection.execute(f"INSERT INTO main.{table} ({columns}) SELECT {columns} FROM new.{table}")
    connection.close()
    Journal(older).close()
    assert counts(older, KEPT) == counts(source, KEPT)
    lines = "SELECT 'in line', number, in_line FROM versions"
    assert counts(older, lines) == counts(source, lines) == [("in line", 0, 1), ("in line", 1, 1)]
