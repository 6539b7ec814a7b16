"""Queries of export, import and estimates: the sessions, a session written at once, and the tokens of a day."""

from __future__ import annotations

from collections.abc import Sequence

from openclaw_rl.shared.journal.sessions import end_episode
from openclaw_rl.shared.journal.signals import add_feedback, settle
from openclaw_rl.shared.journal.sqlite import Connection
from openclaw_rl.shared.journal.turns import record_turn
from openclaw_rl.shared.journal.views import Lengths, Recorded
from openclaw_rl.shared.records import Feedback, Kind, NextState, Turn


def recorded(connection: Connection, since: float = 0.0) -> Recorded:
    """Traffic since a time (Unix seconds); imported turns do not count."""
    own = "arrived >= ? AND response_tokens > 0 AND dialect != 'import'"
    days = connection.value(f"SELECT count(DISTINCT date(arrived, 'unixepoch')) FROM turns WHERE {own}", since)
    rows = connection.execute(
        f"SELECT kind, count(*), sum(prompt_tokens), sum(response_tokens) FROM turns WHERE {own} GROUP BY kind",
        (since,),
    )
    kinds: dict[Kind, Lengths] = {kind: Lengths(*numbers) for kind, *numbers in rows}
    answered = connection.value(
        "SELECT count(*) FROM next_states JOIN turns ON turns.id = next_states.turn "
        f"WHERE role = 'user' AND kind = 'main' AND {own}",
        since,
    )
    samples = connection.execute(
        "SELECT count(*), count(hint), coalesce(sum(coalesce(reward, 0) != 0), 0) FROM samples"
    ).fetchone()
    return Recorded(days, kinds.get("main", Lengths()), kinds.get("side", Lengths()), answered, *samples)


def session_ids(connection: Connection, since: float = 0.0) -> list[str]:
    """Sessions that were last seen at `since` (Unix seconds) or later, oldest first."""
    return connection.column("SELECT session_id FROM sessions WHERE last_seen >= ? ORDER BY id", since)


def turn_ids(connection: Connection, session_id: str) -> list[str]:
    """The turns of a session, oldest first; none of one that is not there."""
    return connection.column(
        "SELECT turn_id FROM turns JOIN sessions ON sessions.id = session WHERE session_id = ? ORDER BY turns.id",
        session_id,
    )


def import_session(
    connection: Connection,
    turns: Sequence[Turn],
    next_states: Sequence[NextState] = (),
    feedback: Sequence[Feedback] = (),
) -> bool:
    """Store a session that is over, with what came back on its turns, all or nothing; False if it is there already.

    The turns are all of one session, one at least. Those that may be trained on wait for a judge afterwards as any
    other turn does.
    """
    session_id = turns[0].session_id
    if connection.value("SELECT 1 FROM sessions WHERE session_id = ?", session_id):
        return False
    for turn in turns:
        record_turn(connection, turn)
    for state in next_states:
        settle(connection, state)
    for one in feedback:
        add_feedback(connection, one)
    end_episode(connection, session_id, "imported")
    return True
