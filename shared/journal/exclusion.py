"""Turns that a person said must never be learned from."""

from __future__ import annotations

from openclaw_rl.shared.journal.signals import quarantine_turn, queue_turn
from openclaw_rl.shared.journal.sqlite import Connection
from openclaw_rl.shared.journal.turns import turn_row
from openclaw_rl.shared.records import now

EXCLUDED = "a person said that it is never to be learned from"
"""The reason why such a turn is quarantined, unless it was already."""


def exclude(connection: Connection, turn_id: str) -> None:
    """Never learn from a turn: a sample of it that waits is set aside, and none becomes ready any more; a step that has
    it in hand is dropped. Versions that learned from it stay. Raises MissingRecord if there is no such turn.
    """
    turn = turn_row(connection, turn_id)
    connection.execute("INSERT OR IGNORE INTO excluded (turn, time) VALUES (?,?)", (turn, now()))
    if connection.value("SELECT 1 FROM quarantines WHERE turn = ?", turn) is None:
        quarantine_turn(connection, turn, EXCLUDED, now())
    connection.execute("DELETE FROM judge_queue WHERE turn = ?", (turn,))


def include(connection: Connection, turn_id: str) -> None:
    """Take `exclude` back: what came after the turn is judged again. Raises MissingRecord if there is no such turn."""
    turn = turn_row(connection, turn_id)
    if not connection.execute("DELETE FROM excluded WHERE turn = ?", (turn,)).rowcount:
        return
    aside = connection.execute("DELETE FROM quarantines WHERE turn = ? AND reason = ?", (turn, EXCLUDED)).rowcount
    came = "SELECT 1 FROM {} WHERE turn = ?"
    if aside and any(connection.value(came.format(one), turn) for one in ("next_states", "feedback", "judgements")):
        queue_turn(connection, turn)


def is_excluded(connection: Connection, turn: int) -> bool:
    """True if the turn of a row is never to be learned from."""
    return connection.value("SELECT 1 FROM excluded WHERE turn = ?", turn) is not None
