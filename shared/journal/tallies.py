"""Counts that the schema's triggers keep with every write: reading them costs the same however long the journal is."""

from __future__ import annotations

from openclaw_rl.shared.journal.sqlite import Connection


def tally(connection: Connection, name: str) -> dict[str, int]:
    """The counts of a name, by key; those that are 0 are left out."""
    return dict(connection.execute("SELECT key, count FROM tallies WHERE name = ?", (name,)).fetchall())


def total(connection: Connection, name: str) -> int:
    """The sum of the counts of a name."""
    return int(connection.value("SELECT coalesce(sum(count), 0) FROM tallies WHERE name = ?", name))
