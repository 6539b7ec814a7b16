"""Attempts: episodes that an environment began, each at a task, some of them members of a group at one task."""

from __future__ import annotations

from openclaw_rl.shared.journal.sessions import next_episode, open_episode_of, see_session
from openclaw_rl.shared.journal.sqlite import Connection
from openclaw_rl.shared.journal.views import Attempted
from openclaw_rl.shared.records import now

SOURCE = "environment"
"""The source of a session that began with an attempt."""

_ATTEMPT = """
SELECT session_id, turns.episode, task, task_group, attempts,
  (SELECT count(*) FROM turns AS earlier WHERE earlier.session = turns.session AND earlier.kind = 'main'
   AND earlier.episode = turns.episode AND earlier.status = 'complete'
   AND (earlier.arrived, earlier.id) < (turns.arrived, turns.id))
FROM turns JOIN episodes USING (session, episode) JOIN sessions ON sessions.id = session
WHERE turn_id = ? AND kind = 'main' AND status = 'complete' AND environment
"""


def begin_attempt(
    connection: Connection,
    session_id: str,
    policy: str,
    *,
    task: str = "",
    group: str = "",
    attempts: int = 0,
    train: bool = True,
) -> int | None:
    """Open an episode for an attempt; its number, or `None` while the session has an open one. `group` must be unique
    among all owners, `attempts` is the wanted number of its members (0: unknown).
    """
    if open_episode_of(connection, session_id)[1] is not None:
        return None
    time = now()
    session = see_session(connection, session_id, policy, SOURCE, time)
    episode = next_episode(connection, session)
    connection.execute(
        "INSERT INTO episodes (session, episode, started, task, task_group, attempts, environment, train) "
        "VALUES (?,?,?,?,?,?,1,?)",
        (session, episode, time, task, group, attempts, train),
    )
    return episode


def attempt_of(connection: Connection, turn_id: str) -> Attempted | None:
    """The attempt that a complete main turn is a step of; `None` for any other turn, and outside of attempts."""
    row = connection.execute(_ATTEMPT, (turn_id,)).fetchone()
    return None if row is None else Attempted(*row)
