"""The journal's schema, as a list of migrations, `schema/*.sql`: the n-th brings a journal to `user_version` n.

Content lives in `blobs` (messages, tool lists, image files; by digest) and `contents` (token ids, logprobs). A turn
keeps only its difference to its `base`: its parent, or for a root a turn that begins with the same first message (its
`head`).
`turn_blobs` says which blobs a turn holds: by position its own messages, at -1 its answer, at -2 its tools;
`blob_images` which blobs are the images that a message shows.
`tallies` and `places` count what the service reports, and `events` says what happened: triggers keep all three, with
whatever writes.
`judge_queue` holds the turns that wait for a judgement, kept by the same transactions that make them wait, so that no
query ever has to look for them; `audit_queue` likewise those whose audit is undecided.
Migrations only ever go forward.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

from openclaw_rl.shared.errors import JournalError

APPLICATION_ID = 0x0C1A_34C1
"""Marks a SQLite file as a journal of this project (`PRAGMA application_id`)."""

MIGRATIONS = tuple(path.read_text() for path in sorted(Path(__file__).with_name("schema").glob("*.sql")))


def migrate(connection: sqlite3.Connection, path: str, migrations: tuple[str, ...] = MIGRATIONS) -> None:
    """Bring the journal at `path` to the newest schema, in one transaction; several processes may try at once.

    Raises JournalError when the file is another program's database or was written by a newer version of this one.
    """
    if _schema(connection, path, len(migrations)) == len(migrations):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        found = _schema(connection, path, len(migrations))
        for script in migrations[found:]:
            for statement in _statements(script):
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(migrations)}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _statements(script: str) -> Iterator[str]:
    """The statements of a script; those of a trigger hold others."""
    statement = ""
    for part in script.split(";"):
        statement += f"{part};"
        if sqlite3.complete_statement(statement):
            if statement.strip(" \n;"):
                yield statement
            statement = ""


def _schema(connection: sqlite3.Connection, path: str, known: int) -> int:
    found = int(connection.execute("PRAGMA user_version").fetchone()[0])
    application = int(connection.execute("PRAGMA application_id").fetchone()[0])
    tables = int(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
    if application != APPLICATION_ID and (application or found or tables):
        raise JournalError(
            f"{path} is a SQLite database of another program; choose another folder with the setting `data`"
        )
    if found > known:
        raise JournalError(
            f"journal {path} has schema {found}, this version of openclaw-rl knows up to {known}; "
            "upgrade openclaw-rl, or choose another folder with the setting `data`"
        )
    return found
