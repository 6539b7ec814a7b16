"""Integrity of a journal: contradictions between its tables, rows that cannot be read, and turns in no place."""

from __future__ import annotations

from collections.abc import Sequence

from openclaw_rl.shared.errors import DamagedRecord
from openclaw_rl.shared.journal.accounting import accounting, wrong_places
from openclaw_rl.shared.journal.learning import damaged_versions, samples_of
from openclaw_rl.shared.journal.signals import records_of
from openclaw_rl.shared.journal.sqlite import Connection
from openclaw_rl.shared.journal.turns import naming_row, read_turn

_CONTRADICTIONS = {
    "samples are learned from, and no version holds them": "SELECT count(*) FROM samples WHERE state = 'consumed' "
    "AND sample_id NOT IN (SELECT sample_id FROM version_samples)",
    "samples wait for a step, though a version holds them": "SELECT count(*) FROM samples WHERE state = 'ready' "
    "AND sample_id IN (SELECT sample_id FROM version_samples)",
    "turns have two samples that wait": "SELECT count(*) FROM (SELECT turn FROM samples WHERE state = 'ready' "
    "GROUP BY turn HAVING count(*) > 1)",
    "set-aside turns have a sample that waits": "SELECT count(*) FROM quarantines "
    "JOIN samples ON samples.turn = quarantines.turn WHERE state = 'ready'",
    "turns wait for a judge and cannot be trained on": "SELECT count(*) FROM judge_queue "
    "JOIN turns ON turns.id = judge_queue.turn WHERE kind != 'main' OR status != 'complete' OR untrainable != ''",
    "versions are there and none is live": "SELECT count(*) FROM versions "
    "WHERE NOT EXISTS (SELECT 1 FROM versions WHERE state = 'live')",
    "turns name a parent that is not there": "SELECT count(*) FROM turns WHERE parent_turn_id IS NOT NULL "
    "AND parent_turn_id NOT IN (SELECT turn_id FROM turns)",
    "versions have a state that there is not": "SELECT count(*) FROM versions "
    "WHERE state NOT IN ('candidate', 'live', 'retired', 'rejected')",
    "messages belong to no turn": "SELECT count(*) FROM blobs WHERE id NOT IN (SELECT blob FROM turn_blobs) "
    "AND id NOT IN (SELECT image FROM blob_images)",
}


def contradictions(connection: Connection) -> list[str]:
    """Contradictions between the tables, and turns that are in no place. Reads no content."""
    counts = [(int(connection.value(query)), text) for text, query in _CONTRADICTIONS.items()]
    found = [f"{count} {text}" for count, text in counts if count]
    found += [f"the row of version {number} is not what was written" for number in damaged_versions(connection)]
    wrong = wrong_places(connection)
    found += [f"{wrong} turns are counted in a wrong place"] if wrong else []
    lost = accounting(connection)["lost"]
    return [*found, f"{lost} settled turns are in no place"] if lost else found


def file_faults(connection: Connection) -> list[str]:
    """Faults of the file itself that SQLite finds: of pages and indexes, and rows that refer to none."""
    found = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(20)") if row[0] != "ok"]
    missing = connection.execute("PRAGMA foreign_key_check").fetchall()
    tables = sorted({(str(row[0]), str(row[2])) for row in missing})
    return found + [f"rows of {table} refer to rows of {parent} that are not there" for table, parent in tables]


def turn_rows(connection: Connection) -> list[int]:
    """The row of every turn."""
    return connection.column("SELECT id FROM turns ORDER BY id")


def unreadable(connection: Connection, rows: Sequence[int]) -> list[str]:
    """The turns among these rows that are not what was recorded, by their content, signals or samples."""
    found = []
    for row in rows:
        try:
            turn = read_turn(connection, row)
            with naming_row(row):
                records_of(connection, row)
                samples_of(connection, turn, row)
        except DamagedRecord as error:
            aside = connection.value("SELECT 1 FROM quarantines WHERE turn = ?", row)
            found.append(f"{error}{' (set aside)' if aside else ''}")
    return found
