"""The version that a person pinned, and the checkpoints that may be removed."""

from __future__ import annotations

from collections.abc import Sequence

from openclaw_rl.shared.journal.sqlite import Connection
from openclaw_rl.shared.journal.status import PAUSE_REASON, get_control, set_control

_PINNED = "pinned version"


def pin_reason(number: int) -> str:
    """The reason why training is paused while a version is pinned."""
    return f"version {number} is pinned, so that nothing else goes live: openclaw-rl pin --off"


def pinned(connection: Connection) -> int | None:
    """The version that a person pinned."""
    number = get_control(connection, _PINNED)
    return int(number) if number else None


def keep_pinned(connection: Connection, number: int) -> None:
    """Pin a version instead of the one that is. Training pauses, unless a person has paused it."""
    before = pinned(connection)
    set_control(connection, _PINNED, str(number))
    ours = before is not None and get_control(connection, PAUSE_REASON) == pin_reason(before)
    if ours or get_control(connection, "train", "running") != "paused":
        set_control(connection, "train", "paused")
        set_control(connection, PAUSE_REASON, pin_reason(number))


def unpin(connection: Connection) -> int | None:
    """Let other versions go live again; training continues if the pin had paused it. The version that was pinned."""
    number = pinned(connection)
    if number is not None:
        set_control(connection, _PINNED, "")
        if get_control(connection, PAUSE_REASON) == pin_reason(number):
            set_control(connection, PAUSE_REASON, "")
            set_control(connection, "train", "running")
    return number


def begin_removal(connection: Connection, numbers: Sequence[int]) -> list[int]:
    """Mark checkpoints of these versions as removed: from now on none of them can be made live. Gives those whose files
    may go; the live version, its parent, candidates and the pinned one stay.
    """
    live = connection.execute("SELECT number, parent FROM versions WHERE state = 'live'").fetchone() or ()
    candidates = connection.column("SELECT number FROM versions WHERE state = 'candidate'")
    gone = [number for number in numbers if number not in {*live, *candidates, pinned(connection)}]
    connection.executemany("UPDATE versions SET removed = 1 WHERE number = ?", [(number,) for number in gone])
    return gone


def is_removed(connection: Connection, number: int) -> bool:
    """True if the files of a version are gone, or are about to go; never for the base, which has none."""
    query = "SELECT 1 FROM versions WHERE number = ? AND number != 0 AND removed"
    return connection.value(query, number) is not None
