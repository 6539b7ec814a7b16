"""Sessions and their episodes, and references to turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from openclaw_rl.shared.journal.sqlite import Connection
from openclaw_rl.shared.journal.views import EpisodeRow, SessionRow, TurnRef, TurnSummary
from openclaw_rl.shared.owners import SERVICE, owner_of
from openclaw_rl.shared.records import Kind, now

FOUND = 64
"""Turns that are given for one digest: of the same words in thousands of sessions only the latest matter."""

FRESH_SECONDS = 30.0
"""Seconds that `last_seen` may lag behind: opening an episode that is open writes nothing within this time."""

_NEWEST = f"ORDER BY turns.id DESC LIMIT {FOUND}"

_REFERENCE = """
SELECT turn_id, sessions.session_id, episode, kind, status, answer_key, request_key, arrived,
  EXISTS (SELECT 1 FROM next_states WHERE turn = turns.id AND NOT weak), owner,
  EXISTS (SELECT 1 FROM episodes WHERE episodes.session = turns.session AND episodes.episode = turns.episode
          AND environment)
FROM turns JOIN sessions ON sessions.id = turns.session
"""

_RECENT = 10_000
"""Turns among which recent side turns are looked for."""
_OVERLAPPING = 64
"""Of so many turns that arrived last the one that was finished last is looked for."""

_SESSION = """
SELECT sessions.id, session_id, policy, source, created, last_seen,
  (SELECT count(*) FROM turns WHERE session = sessions.id AND kind = 'main'),
  (SELECT count(*) FROM turns WHERE session = sessions.id AND kind = 'side'),
  (SELECT count(*) FROM turns JOIN next_states ON turn = turns.id WHERE session = sessions.id AND kind = 'main'),
  (SELECT count(DISTINCT turn) FROM turns JOIN samples ON turn = turns.id
   WHERE session = sessions.id AND state = 'consumed'),
  owner
FROM sessions
"""

_SUMMARY = """
SELECT turns.id, turn_id, episode, parent_turn_id, parent_reason, kind, kind_reason, status, finish_reason,
  prompt_tokens, response_tokens, arrived,
  EXISTS (SELECT 1 FROM next_states WHERE turn = turns.id)
FROM turns WHERE session = ? ORDER BY turns.id
"""

_STATES = (
    ("SELECT 1 FROM samples WHERE turn = ? AND state = 'consumed'", "trained"),
    ("SELECT 1 FROM samples WHERE turn = ? AND state = 'ready'", "ready"),
    ("SELECT 1 FROM samples WHERE turn = ? AND state = 'known'", "known"),
    ("SELECT 1 FROM quarantines WHERE turn = ?", "quarantined"),
    ("SELECT 1 FROM judge_queue WHERE turn = ?", "unjudged"),
    ("SELECT 1 FROM judgements WHERE turn = ?", "judged"),
)
"""The state of a turn is that of the first query that finds something."""

_LAST_JUDGEMENT = "last judgement"
"""The control that keeps the numbers of forgotten judgements from being given again: others remember how far they have
read by them.
"""


def open_episode(connection: Connection, session_id: str, policy: str, source: str, *, kind: Kind = "main") -> int:
    """The number of the session's open episode, made if there is none (and the session with it); the session counts
    as seen now. A side call (a heartbeat) is no sign of life: it joins the latest episode as it is, open or ended.
    """
    known = known_episode(connection, session_id, kind)
    if known is not None:
        return known
    time = now()
    session = see_session(connection, session_id, policy, source, time)
    _, episode = open_episode_of(connection, session_id)
    if episode is not None:
        return episode
    episode = next_episode(connection, session)
    connection.execute("INSERT INTO episodes (session, episode, started) VALUES (?,?,?)", (session, episode, time))
    return episode


def see_session(connection: Connection, session_id: str, policy: str, source: str, time: float) -> int:
    """Note that a session was seen at a time (Unix seconds); it is made if it is new. Its row."""
    row: int = connection.value(
        "INSERT INTO sessions (session_id, owner, policy, source, created, last_seen) VALUES (?,?,?,?,?,?) "
        "ON CONFLICT (session_id) DO UPDATE SET last_seen = max(last_seen, excluded.last_seen) RETURNING id",
        *(session_id, owner_of(session_id), policy, source, time, time),
    )
    return row


def next_episode(connection: Connection, session: int) -> int:
    """The number of the next episode of a session (its row)."""
    return int(connection.value("SELECT coalesce(max(episode) + 1, 0) FROM episodes WHERE session = ?", session))


def known_episode(connection: Connection, session_id: str, kind: Kind) -> int | None:
    """The episode of a request for which nothing has to be written down: a side call's if there is any, a main
    turn's if it is open and the session was seen a moment ago.
    """
    episode: int | None = connection.value(
        "SELECT max(episode) FROM episodes JOIN sessions ON sessions.id = session WHERE session_id = ?1 "
        "AND (?2 != 'main' OR (ended IS NULL AND last_seen > ?3))",
        *(session_id, kind, now() - FRESH_SECONDS),
    )
    return episode


def end_episode(connection: Connection, session_id: str, reason: str) -> int | None:
    """End the session's open episode and give its number; `None` if there is none. Ending twice changes nothing.
    Turns that waited for an outcome which never came wait for a judge from now on.
    """
    session, episode = open_episode_of(connection, session_id)
    if session is not None and episode is not None:
        close_episode(connection, session, episode, reason)
    return episode


def close_episode(connection: Connection, session: int, episode: int, reason: str) -> None:
    """End an episode of a session (its row) if it is open."""
    connection.execute(
        "UPDATE episodes SET ended = ?, reason = ? WHERE session = ? AND episode = ? AND ended IS NULL",
        (now(), reason, session, episode),
    )
    if expected_episode(connection, session) == episode:
        forget_expected(connection, session, queue=True)


def begun_after(connection: Connection, session_id: str, time: float) -> bool:
    """True if the session's open episode has turns, all of which arrived after a time (Unix seconds)."""
    first: float | None = connection.value(
        "SELECT min(arrived) FROM turns JOIN sessions ON sessions.id = turns.session "
        "JOIN episodes ON episodes.session = turns.session AND episodes.episode = turns.episode "
        "WHERE session_id = ? AND episodes.ended IS NULL AND kind = 'main'",
        session_id,
    )
    return first is not None and first > time


def turn_ref(connection: Connection, turn_id: str) -> TurnRef | None:
    """A turn, in short."""
    return next(iter(_references(connection, "WHERE turn_id = ?", turn_id)), None)


def idle_sessions(connection: Connection, before: float) -> list[str]:
    """Sessions with an open episode that were last seen (in a main turn or feedback) before a time (Unix seconds),
    longest idle first.
    """
    return connection.column(
        "SELECT DISTINCT session_id, last_seen FROM episodes JOIN sessions ON sessions.id = session "
        "WHERE ended IS NULL AND last_seen < ? ORDER BY last_seen",
        before,
    )


def active_sessions(connection: Connection) -> list[str]:
    """Sessions that have a recorded main turn in their open episode."""
    return connection.column(
        "SELECT session_id FROM episodes AS open JOIN sessions ON sessions.id = session WHERE ended IS NULL "
        "AND EXISTS (SELECT 1 FROM turns WHERE turns.session = open.session AND kind = 'main' "
        "AND turns.episode = open.episode)"
    )


def main_turns(connection: Connection, turn_id: str) -> tuple[int, bool]:
    """The number of complete main turns in the episode of this turn, and whether it is over."""
    found = connection.execute(
        "SELECT (SELECT count(*) FROM turns WHERE session = one.session AND episode = one.episode "
        "AND kind = 'main' AND status = 'complete'), ended IS NOT NULL FROM turns AS one "
        "JOIN episodes USING (session, episode) WHERE turn_id = ?",
        (turn_id,),
    ).fetchone()
    return (int(found[0]), bool(found[1])) if found else (0, True)


def session(connection: Connection, session_id: str, *, turns: bool = True) -> SessionRow | None:
    """A session with its episodes; with `turns` also a line about each of its turns, which takes much longer."""
    found = connection.execute(f"{_SESSION} WHERE session_id = ?", (session_id,)).fetchone()
    return _session_row(connection, found, _summaries(connection, found[0]) if turns else ()) if found else None


def sessions(connection: Connection, limit: int = 50, offset: int = 0, owner: str | None = None) -> list[SessionRow]:
    """Sessions, last seen first, without their turns; of one owner, or of all (`None`)."""
    rows = connection.execute(
        f"{_SESSION} WHERE ?3 IS NULL OR owner = ?3 ORDER BY last_seen DESC, id DESC LIMIT ?1 OFFSET ?2",
        (limit, offset, owner),
    ).fetchall()
    return [_session_row(connection, row) for row in rows]


def find_turns(
    connection: Connection,
    by: Literal["answer_key", "request_key", "exchange_key"],
    keys: Sequence[bytes],
    session_id: str = "",
    *,
    owner: str = SERVICE,
) -> dict[bytes, list[TurnRef]]:
    """An owner's turns by one of their keys: the newest `FOUND` of the named session, then the newest `FOUND` of all;
    keys that no turn has are left out.
    """
    return _find(connection, f"WHERE {by} = ?1 AND {by} != x''", keys, session_id, owner)


def _find(
    connection: Connection, where: str, keys: Sequence[bytes], session_id: str, owner: str
) -> dict[bytes, list[TurnRef]]:
    where += " AND owner = ?2"
    ours = f"{where} AND session = (SELECT id FROM sessions WHERE session_id = ?3)"
    found = {}
    for key in dict.fromkeys(keys):
        refs = _references(connection, f"{ours} {_NEWEST}", key, owner, session_id) if session_id else []
        known = {ref.turn_id for ref in refs}
        refs += [ref for ref in _references(connection, f"{where} {_NEWEST}", key, owner) if ref.turn_id not in known]
        if refs:
            found[key] = refs
    return found


def find_answers(
    connection: Connection, marks: Sequence[bytes], session_id: str = "", *, owner: str = SERVICE
) -> dict[bytes, list[TurnRef]]:
    """Turns by the marks of their answers (`messages.equality.answer_marks`), as `find_turns` gives them."""
    where = "WHERE turns.id IN (SELECT turn FROM answer_marks WHERE mark = ?1)"
    return _find(connection, where, marks, session_id, owner)


def side_turns(
    connection: Connection, limit: int, session_id: str = "", *, owner: str = SERVICE
) -> list[tuple[str, str]]:
    """An owner's latest complete side turns, of the named session or of all, and the turns that they continue ("" if
    none).
    """
    rows: list[tuple[str, str]] = connection.execute(
        "SELECT turn_id, ifnull(parent_turn_id, '') FROM turns WHERE id > (SELECT max(id) FROM turns) - ?2 "
        "AND kind = 'side' AND status = 'complete' "
        "AND (?3 = '' OR session = (SELECT id FROM sessions WHERE session_id = ?3)) "
        "AND (SELECT owner FROM sessions WHERE sessions.id = session) = ?4 ORDER BY id DESC LIMIT ?1",
        (limit, _RECENT, session_id, owner),
    ).fetchall()
    return rows


def last_main_turn(
    connection: Connection, session_id: str, episode: int | None = None, before: float | None = None
) -> TurnRef | None:
    """The complete main turn of an episode (default: of the latest episode that has one) whose answer was finished
    last, if asked, by a time. Of answers that overlapped that need not be the one that was asked for last.
    """
    found = _references(
        connection,
        "WHERE turns.id = (SELECT id FROM (SELECT turns.id, episode, finished "
        "FROM turns JOIN sessions ON sessions.id = turns.session "
        "WHERE sessions.session_id = ?1 AND kind = 'main' AND status = 'complete' "
        "AND (?2 IS NULL OR episode = ?2) AND (?3 IS NULL OR finished <= ?3) "
        f"ORDER BY episode DESC, arrived DESC, turns.id DESC LIMIT {_OVERLAPPING}) "
        "ORDER BY episode DESC, finished DESC, id DESC LIMIT 1)",
        *(session_id, episode, before),
    )
    return found[0] if found else None


def last_judgement(connection: Connection) -> int:
    """The highest number that a judgement ever had, also one that was forgotten."""
    found = connection.value(
        "SELECT max((SELECT coalesce(max(id), 0) FROM judgements), "
        "coalesce((SELECT CAST(value AS INTEGER) FROM controls WHERE key = ?), 0))",
        _LAST_JUDGEMENT,
    )
    return int(found)


def keep_last_judgement(connection: Connection) -> None:
    """Remember the highest number, since judgements are about to be forgotten."""
    last = str(last_judgement(connection))
    connection.execute("INSERT OR REPLACE INTO controls VALUES (?,?)", (_LAST_JUDGEMENT, last))


EXPECTED = "outcome-expected/"
"""The beginning of the control that says for a session, by its row, in which episode an outcome is to come."""

_ANSWERED_BY_TOOLS = "EXISTS (SELECT 1 FROM next_states WHERE turn = turns.id AND role != 'user')"
_UNJUDGED = (
    "SELECT id FROM turns WHERE session = ? AND episode = ? AND kind = 'main' AND status = 'complete' "
    "AND untrainable = '' AND NOT EXISTS (SELECT 1 FROM judgements WHERE turn = turns.id)"
)
_HAS_FEEDBACK = "EXISTS (SELECT 1 FROM feedback WHERE feedback.turn = turns.id)"


def expected_episode(connection: Connection, session: int) -> int | None:
    """The episode of a session (its row) that an outcome is to come for, `None` where none was announced."""
    episode = connection.value("SELECT value FROM controls WHERE key = ?", f"{EXPECTED}{session}")
    return None if episode is None else int(episode)


def expect(connection: Connection, session: int, episode: int) -> None:
    """An outcome is to come for this episode: what tools answered in it waits for no judge."""
    connection.execute("INSERT OR REPLACE INTO controls VALUES (?,?)", (f"{EXPECTED}{session}", str(episode)))
    connection.execute(
        f"DELETE FROM judge_queue WHERE turn IN ({_UNJUDGED} AND {_ANSWERED_BY_TOOLS} AND NOT {_HAS_FEEDBACK})",
        (session, episode),
    )


def forget_expected(connection: Connection, session: int | None, *, queue: bool = False) -> None:
    """No outcome is to come any more; with `queue` a judge gets the turns that waited for it."""
    episode = None if session is None else expected_episode(connection, session)
    if episode is None:
        return
    connection.execute("DELETE FROM controls WHERE key = ?", (f"{EXPECTED}{session}",))
    if queue:
        connection.execute(
            f"INSERT OR IGNORE INTO judge_queue {_UNJUDGED} AND ({_ANSWERED_BY_TOOLS} OR {_HAS_FEEDBACK})",
            (session, episode),
        )


def open_episode_of(connection: Connection, session_id: str) -> tuple[int | None, int | None]:
    session = connection.value("SELECT id FROM sessions WHERE session_id = ?", session_id)
    return session, connection.value("SELECT max(episode) FROM episodes WHERE session = ? AND ended IS NULL", session)


def _references(connection: Connection, where: str, *values: object) -> list[TurnRef]:
    rows = connection.execute(f"{_REFERENCE} {where}", values)
    return [TurnRef(*[*row, bool(settled), owner, bool(attempt)]) for *row, settled, owner, attempt in rows]


def _session_row(connection: Connection, row: Sequence[Any], turns: Sequence[TurnSummary] = ()) -> SessionRow:
    session, session_id, policy, source, created, last_seen, main, side, settled, trained, owner = row
    episodes = [
        EpisodeRow(episode, started, ended, reason, bool(environment), task, group, attempts, bool(train))
        for episode, started, ended, reason, environment, task, group, attempts, train in connection.execute(
            "SELECT episode, started, ended, reason, environment, task, task_group, attempts, train FROM episodes "
            "WHERE session = ? ORDER BY episode",
            (session,),
        )
    ]
    return SessionRow(
        session_id, policy, source, created, last_seen, episodes, main, side, settled, trained, turns, owner,
    )  # fmt: skip


def _summaries(connection: Connection, session: int) -> list[TurnSummary]:
    rows = connection.execute(_SUMMARY, (session,)).fetchall()
    return [TurnSummary(*[*row, bool(settled), *turn_state(connection, turn)]) for turn, *row, settled in rows]


def turn_state(connection: Connection, turn: int) -> tuple[float | None, str]:
    """The score of the latest judgement of a turn (its row), and its state (see `TurnSummary`)."""
    score = connection.value("SELECT score FROM judgements WHERE turn = ? ORDER BY id DESC LIMIT 1", turn)
    return score, next((state for query, state in _STATES if connection.value(query, turn)), "")
