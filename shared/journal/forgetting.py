"""Forgetting: turns are deleted with all that was said about them, whole sessions or single episodes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress

from openclaw_rl.shared.errors import DamagedRecord
from openclaw_rl.shared.journal import image_store
from openclaw_rl.shared.journal.encoding import unpack_record
from openclaw_rl.shared.journal.sessions import (
    expected_episode,
    forget_expected,
    keep_last_judgement,
    session,
)
from openclaw_rl.shared.journal.sqlite import Connection
from openclaw_rl.shared.journal.turns import PARENT_FORGOTTEN, rebase
from openclaw_rl.shared.journal.views import Forgotten, OldEpisode
from openclaw_rl.shared.records import Outcome, new_id

ERASING = "erasing"
"""The control that says that deleted content may still be in the write-ahead log, with a value of its own each time."""

# Everything that hangs on a turn, in an order that foreign keys allow.
_OF_A_TURN = (
    "contents",
    "answer_marks",
    "turn_blobs",
    "next_states",
    "feedback",
    "judge_queue",
    "audit_queue",
    "audits",
    "judgements",
    "samples",
    "quarantines",
    "excluded",
)

_OLD = """
SELECT session_id, episode, count(*), max(max(finished, arrived))
FROM turns JOIN sessions ON sessions.id = session LEFT JOIN episodes USING (session, episode)
WHERE ended IS NOT NULL OR last_seen < ?1
GROUP BY session, episode HAVING max(max(finished, arrived)) < ?1
UNION ALL
SELECT session_id, NULL, 0, last_seen FROM sessions
WHERE last_seen < ?1 AND NOT EXISTS (SELECT 1 FROM turns WHERE session = sessions.id)
ORDER BY 4
"""


def old_episodes(connection: Connection, before: float) -> list[OldEpisode]:
    """Episodes without a turn since a time (Unix seconds), oldest first. An open one is in use while its session is,
    however long ago its turns are.
    """
    return [OldEpisode(*row) for row in connection.execute(_OLD, (before,))]


def forgettable(connection: Connection, *, session_id: str | None = None, before: float = 0.0) -> Forgotten:
    """The sum of what forgetting a session, or else all episodes without a turn since a time, would delete."""
    if session_id is None:
        return Forgotten.of(old_episodes(connection, before), _learned_before(connection, before))
    row = session(connection, session_id)
    if row is None:
        return Forgotten()
    episodes = [OldEpisode(session_id, one.episode, 0, row.last_seen) for one in row.episodes]
    found = Forgotten.of(episodes, learned_from(connection, session_id))
    found.turns = len(row.turns)
    return found


def _learned_before(connection: Connection, before: float) -> list[int]:
    numbers: list[int] = connection.column(
        f"WITH old AS ({_OLD}) SELECT DISTINCT version FROM old JOIN sessions USING (session_id) "
        "JOIN turns ON turns.session = sessions.id AND turns.episode = old.episode "
        "JOIN samples ON samples.turn = turns.id JOIN version_samples ON version_samples.sample_id = samples.sample_id "
        "ORDER BY version",
        before,
    )
    return numbers


def learned_from(connection: Connection, session_id: str, episode: int | None = None) -> list[int]:
    """The numbers of the versions that learned directly from a session, or an episode of it."""
    numbers: list[int] = connection.column(
        "SELECT DISTINCT version FROM sessions JOIN turns ON turns.session = sessions.id "
        "JOIN samples ON samples.turn = turns.id JOIN version_samples ON version_samples.sample_id = samples.sample_id "
        "WHERE session_id = ?1 AND (?2 IS NULL OR episode = ?2) ORDER BY version",
        *(session_id, episode),
    )
    return numbers


def forget(
    connection: Connection, session_id: str, episode: int | None = None, before: float | None = None
) -> list[int]:
    """Delete the turns of a session, or of one episode of it, the content that no other turn shares, and every record
    derived from them. A session whose last turns go is deleted with them. Does nothing if they are in use since
    `before`.

    The numbers of the versions that learned directly from them (versions made from those inherit it) are returned,
    and stay with the ids of their samples. A step in flight on their samples can no longer be committed.
    """
    row = connection.value("SELECT id FROM sessions WHERE session_id = ?", session_id)
    if row is None or (before is not None and _in_use(connection, row, episode, before)):
        return []
    turns = connection.execute(
        "SELECT id, turn_id FROM turns WHERE session = ?1 AND (?2 IS NULL OR episode = ?2)", (row, episode)
    ).fetchall()
    versions = learned_from(connection, session_id, episode)
    connection.execute(
        "UPDATE turns SET parent_turn_id = NULL, parent_reason = ?3 WHERE parent_turn_id IN "
        "(SELECT turn_id FROM turns WHERE session = ?1 AND (?2 IS NULL OR episode = ?2))",
        (row, episode, PARENT_FORGOTTEN),
    )
    _forget_turns(connection, turns)
    _forget_episode(connection, row, episode)
    connection.execute("INSERT OR REPLACE INTO controls VALUES (?,?)", (ERASING, new_id("")))
    return versions


def _in_use(connection: Connection, session: int, episode: int | None, before: float) -> bool:
    """True if something came into a session or episode after it was found to be old."""
    last: float | None = connection.value(
        "SELECT max(max(finished, arrived)) FROM turns WHERE session = ?1 AND (?2 IS NULL OR episode = ?2)",
        *(session, episode),
    )
    if last is None:
        last = connection.value("SELECT last_seen FROM sessions WHERE id = ?", session)
    return last is not None and last >= before


def erased(connection: Connection, erasing: str) -> None:
    """The log was emptied after the transaction that set the control `ERASING` to this."""
    connection.execute("DELETE FROM controls WHERE key = ? AND value = ?", (ERASING, erasing))


def _forget_turns(connection: Connection, turns: Sequence[tuple[int, str]]) -> None:
    rows = {row for row, _ in turns}
    dependents, blobs = set[int](), set[int]()
    for row, _ in turns:
        dependents.update(connection.column("SELECT id FROM turns WHERE base = ?", row))
        blobs.update(connection.column("SELECT blob FROM turn_blobs WHERE turn = ?", row))
    rebase(connection, sorted(dependents - rows))
    keep_last_judgement(connection)
    images = image_store.images_of(connection, sorted(blobs))
    for row, turn_id in turns:
        connection.execute("UPDATE turns SET base = NULL WHERE id = ?", (row,))
        connection.execute("DELETE FROM work WHERE subject = ?", (turn_id,))
        for table in _OF_A_TURN:
            connection.execute(f"DELETE FROM {table} WHERE turn = ?", (row,))
    connection.executemany("DELETE FROM turns WHERE id = ?", [(row,) for row in rows])
    connection.executemany(
        "DELETE FROM blobs WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM turn_blobs WHERE blob = ?1)",
        [(blob,) for blob in blobs],
    )
    image_store.drop_unseen(connection, images)
    for _, turn_id in turns:
        connection.recent.drop(turn_id)


def _forget_episode(connection: Connection, session: int, episode: int | None) -> None:
    """Delete an episode without turns, and the session with its last one."""
    if connection.value("SELECT 1 FROM turns WHERE session = ?", session) is None:
        episode = None
    if episode is None or expected_episode(connection, session) == episode:
        forget_expected(connection, session)
    if episode is None:
        for table in ("outcomes", "episodes"):
            connection.execute(f"DELETE FROM {table} WHERE session = ?", (session,))
        connection.execute("DELETE FROM sessions WHERE id = ?", (session,))
        return
    connection.execute("UPDATE sessions SET title = NULL WHERE id = ?", (session,))  # it may be from this episode
    later = [
        connection.value(f"SELECT min({time}) FROM {table} WHERE session = ? AND episode > ?", session, episode)
        for table, time in (("episodes", "started"), ("turns", "arrived"))
    ]
    began = min((time for time in later if time is not None), default=math.inf)
    connection.execute("DELETE FROM outcomes WHERE session = ? AND episode = ?", (session, episode))
    of_older_versions = "SELECT id, body FROM outcomes WHERE session = ? AND episode IS NULL"
    for row, body in connection.execute(of_older_versions, (session,)).fetchall():
        outcome = None
        with suppress(DamagedRecord):
            outcome = unpack_record(body, Outcome)
        # It may also be about an episode before: what is said of that is lost with it, rather than kept with this.
        if outcome is None or outcome.time < began:
            connection.execute("DELETE FROM outcomes WHERE id = ?", (row,))
    connection.execute("DELETE FROM episodes WHERE session = ? AND episode = ?", (session, episode))
