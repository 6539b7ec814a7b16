"""Attempts: what the learner is about to do, in the journal before it does it, so that what ends its process is known.

A step is named by the oldest sample of its batch, a judgement by its turn. An attempt that still runs when the next
process begins has ended the one before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from openclaw_rl.shared.journal.sqlite import Connection

Attempted = Literal["step", "judge"]

MOST_DEATHS = 2
"""What has ended so many processes is not tried again."""


def begin_attempts(connection: Connection, kind: Attempted, subjects: Sequence[str]) -> None:
    """The work on these begins. A step begins alone: attempts at other batches are over."""
    if kind == "step":
        connection.execute("DELETE FROM attempts WHERE kind = 'step' AND subject != ?", (subjects[0],))
    connection.executemany(
        "INSERT INTO attempts (kind, subject, tries) VALUES (?,?,1) "
        "ON CONFLICT DO UPDATE SET tries = tries + 1, running = 1",
        [(kind, subject) for subject in subjects],
    )


def end_attempts(connection: Connection, kind: Attempted, subjects: Sequence[str]) -> None:
    """The work on these has ended, and the process has not."""
    connection.executemany(
        "DELETE FROM attempts WHERE kind = ? AND subject = ?", [(kind, subject) for subject in subjects]
    )


def stop_attempts(connection: Connection) -> None:
    """The process is about to be stopped: that is the fault of none."""
    connection.execute("UPDATE attempts SET running = 0")


def count_deaths(connection: Connection) -> dict[str, int]:
    """Count what the process before ended in: a step if one ran, else every judgement that did. To be called by a new
    process before it begins anything. Returns the deaths of those by subject.
    """
    connection.execute(
        "UPDATE attempts SET deaths = deaths + 1 WHERE running "
        "AND (kind = 'step' OR NOT EXISTS (SELECT 1 FROM attempts WHERE kind = 'step' AND running))"
    )
    found = connection.execute("SELECT subject, deaths FROM attempts WHERE running AND deaths > 0").fetchall()
    connection.execute("UPDATE attempts SET running = 0")
    return dict(found)


def deaths(connection: Connection, kind: Attempted) -> dict[str, int]:
    """The processes that each of a kind has ended, by subject; those that ended none are left out."""
    rows = connection.execute("SELECT subject, deaths FROM attempts WHERE kind = ? AND deaths > 0", (kind,))
    return dict(rows.fetchall())
