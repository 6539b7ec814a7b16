"""Deaths of the learner: its work is in the journal before it begins, so that what ends the process is known by name.

A step is named by the oldest sample of its batch, a judgement by its turn. Work that still runs when the next process
begins has ended the one before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from openclaw_rl.shared.journal.sqlite import Connection

Deadly = Literal["step", "judge"]

MOST_DEATHS = 2
"""What has ended so many processes is not tried again."""


def begin_work(connection: Connection, kind: Deadly, subjects: Sequence[str]) -> None:
    """The work on these begins. A step begins alone: that on other batches is over. A turn that was forgotten meanwhile
    is named no more.
    """
    if kind == "step":
        connection.execute("DELETE FROM work WHERE kind = 'step' AND subject != ?", (subjects[0],))
    connection.executemany(
        "INSERT INTO work (kind, subject) SELECT ?1, ?2 WHERE ?1 != 'judge' OR EXISTS (SELECT 1 FROM turns "
        "WHERE turn_id = ?2) ON CONFLICT DO UPDATE SET running = 1",
        [(kind, subject) for subject in subjects],
    )


def end_work(connection: Connection, kind: Deadly, subjects: Sequence[str]) -> None:
    """The work on these has ended, and the process has not."""
    connection.executemany("DELETE FROM work WHERE kind = ? AND subject = ?", [(kind, subject) for subject in subjects])


def stop_work(connection: Connection) -> None:
    """The process is about to be stopped: that is the fault of none."""
    connection.execute("UPDATE work SET running = 0")


def count_deaths(connection: Connection) -> dict[str, int]:
    """Count what the process before ended in: a step if one ran, else every judgement that did. To be called by a new
    process before it begins anything. Returns the deaths of those by subject.
    """
    connection.execute(
        "UPDATE work SET deaths = deaths + 1 WHERE running "
        "AND (kind = 'step' OR NOT EXISTS (SELECT 1 FROM work WHERE kind = 'step' AND running))"
    )
    found = connection.execute("SELECT subject, deaths FROM work WHERE running AND deaths > 0").fetchall()
    connection.execute("UPDATE work SET running = 0")
    return dict(found)


def deaths(connection: Connection, kind: Deadly) -> dict[str, int]:
    """The processes that each of a kind has ended, by subject; those that ended none are left out."""
    rows = connection.execute("SELECT subject, deaths FROM work WHERE kind = ? AND deaths > 0", (kind,))
    return dict(rows.fetchall())
