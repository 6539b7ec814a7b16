"""Attempts: episodes that an environment began, each at a task, some of them members of a group at one task.

The outcome of an attempt is announced with its beginning: until it comes, or the attempt ends without it, no turn of it
waits for a judge. What comes in the user's role is the environment's, never a person's.
"""

from __future__ import annotations

from collections.abc import Sequence

from openclaw_rl.shared.journal.sessions import expect, next_episode, open_episode_of, see_session
from openclaw_rl.shared.journal.sqlite import Connection
from openclaw_rl.shared.journal.views import Attempted, OpenAttempt
from openclaw_rl.shared.records import now

SOURCE = "environment"
"""The source of a session that began with an attempt."""


def is_step(turn: str) -> str:
    """The condition in SQL that the row `turn` of the table `turns`, in an attempt, is a step of it: a complete main
    turn, and no answer that the agent lost (it asked the same again later, and continued the other one).
    """
    return f"""({turn}.kind = 'main' AND {turn}.status = 'complete' AND NOT (EXISTS (
  SELECT 1 FROM turns AS again WHERE again.session = {turn}.session AND again.kind = 'main'
  AND again.episode = {turn}.episode AND again.arrived >= {turn}.finished AND again.status = 'complete'
  AND again.request_key = {turn}.request_key AND again.request_key != x'')
  AND NOT EXISTS (SELECT 1 FROM turns AS child WHERE child.parent_turn_id = {turn}.turn_id)))"""


_ATTEMPT = f"""
SELECT session_id, turns.episode, task, task_group, attempts,
  (SELECT count(*) FROM turns AS earlier WHERE earlier.session = turns.session
   AND earlier.episode = turns.episode AND {is_step("earlier")}
   AND (earlier.arrived, earlier.id) < (turns.arrived, turns.id))
FROM turns JOIN episodes USING (session, episode) JOIN sessions ON sessions.id = session
WHERE turn_id = ? AND environment AND {is_step("turns")}
"""

_OPEN = """
SELECT session_id, episode, started, train, last_seen FROM sessions JOIN episodes ON session = sessions.id
WHERE session_id = ? AND ended IS NULL AND environment
"""


_UNUSED = """
SELECT 1 FROM sessions JOIN episodes ON episodes.session = sessions.id
WHERE session_id = ? AND ended IS NULL AND environment AND task = ? AND task_group = ? AND attempts = ? AND train = ?
  AND NOT EXISTS (SELECT 1 FROM turns WHERE turns.session = sessions.id AND turns.episode = episodes.episode)
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
) -> OpenAttempt | None:
    """Open an episode for an attempt; `None` while the session has an open one. `group` must be unique among all
    owners, `attempts` is the wanted number of its members (0: unknown). Without `train` nothing of it is to be kept.

    The same attempt again, before it has a turn, is the one that is open: its caller may not have had the answer.
    """
    if open_episode_of(connection, session_id)[1] is not None:
        begun = connection.value(_UNUSED, session_id, task, group, attempts, train)
        return None if begun is None else open_attempt(connection, session_id)
    time = now()
    session = see_session(connection, session_id, policy, SOURCE, time)
    episode = next_episode(connection, session)
    connection.execute(
        "INSERT INTO episodes (session, episode, started, task, task_group, attempts, environment, train) "
        "VALUES (?,?,?,?,?,?,1,?)",
        (session, episode, time, task, group, attempts, train),
    )
    expect(connection, session, episode)
    return OpenAttempt(session_id, episode, time, train, time)


def open_attempt(connection: Connection, session_id: str) -> OpenAttempt | None:
    """The attempt that is under way in a session; `None` where there is none."""
    row = connection.execute(_OPEN, (session_id,)).fetchone()
    return None if row is None else OpenAttempt(row[0], row[1], row[2], bool(row[3]), row[4])


def keep_open(connection: Connection, session_id: str) -> None:
    """Note that a session is in use, though nothing of it is recorded."""
    connection.execute("UPDATE sessions SET last_seen = max(last_seen, ?) WHERE session_id = ?", (now(), session_id))


def group_members(connection: Connection, group: str) -> Sequence[tuple[str, int]]:
    """The tasks of a group's members, with the number of members that each of them wanted; without repetitions."""
    query = "SELECT DISTINCT task, attempts FROM episodes WHERE task_group = ? AND task_group != ''"
    return [(str(task), int(wanted)) for task, wanted in connection.execute(query, (group,))]


def attempt_of(connection: Connection, turn_id: str) -> Attempted | None:
    """The attempt that a turn is a step of; `None` for any other turn, and outside of attempts."""
    row = connection.execute(_ATTEMPT, (turn_id,)).fetchone()
    return None if row is None else Attempted(*row)
