"""Signals about a turn that come after it: next state, feedback, outcome, judgement, quarantine; and the turns that
wait for a judge.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from typing import Any, Literal, TypeVar

import msgspec

from openclaw_rl.shared.errors import DamagedRecord, MissingRecord
from openclaw_rl.shared.journal.attempts import is_step
from openclaw_rl.shared.journal.deaths import end_work
from openclaw_rl.shared.journal.encoding import address, decode, encode, pack_record, unpack, unpack_record
from openclaw_rl.shared.journal.sessions import (
    close_episode,
    expect,
    expected_episode,
    forget_expected,
    last_judgement,
    last_main_turn,
    open_episode_of,
)
from openclaw_rl.shared.journal.sqlite import Connection
from openclaw_rl.shared.journal.turns import intact_turns, naming_row, read_turn, turn_row
from openclaw_rl.shared.journal.views import Frame
from openclaw_rl.shared.records import Feedback, Judgement, Message, NextState, Outcome, Quarantine, Turn, now

_T = TypeVar("_T")
LONGEST_WORDS = 2000
"""Characters of what came after a turn, where it is listed."""

Settled = Literal["", "weak", "firm"]

_ROW = "(SELECT id FROM turns WHERE turn_id = ?)"

_VOTES = "judge tally"
"""The switch that holds the counts of judgements and votes."""

_LEFT_OUT = """
SELECT DISTINCT session, episode FROM judgements JOIN turns ON turns.id = turn
WHERE score IS NULL AND kind = 'main'
  AND EXISTS (SELECT 1 FROM episodes WHERE episodes.session = turns.session AND episodes.episode = turns.episode
              AND ended IS NOT NULL)
  AND NOT EXISTS (
    SELECT 1 FROM turns AS other WHERE other.session = turns.session AND other.episode = turns.episode
      AND other.kind = 'main' AND (EXISTS (SELECT 1 FROM judge_queue WHERE judge_queue.turn = other.id)
      OR EXISTS (SELECT 1 FROM judgements AS scored WHERE scored.turn = other.id AND scored.score IS NOT NULL)))
LIMIT ?
"""

_EXPLICIT = """
JOIN turns ON turns.id = judge_queue.turn
WHERE EXISTS (SELECT 1 FROM feedback WHERE feedback.turn = turns.id)
   OR EXISTS (SELECT 1 FROM outcomes WHERE outcomes.session = turns.session
              AND (outcomes.episode IS NULL OR outcomes.episode = turns.episode))
"""
_NOT_EXCLUDED = "NOT EXISTS (SELECT 1 FROM excluded WHERE excluded.turn = judgements.turn)"
_LAST_TURN = "SELECT max(id) FROM turns WHERE session = ?1 AND kind = 'main' AND episode = ?2"
"""Of a session and an episode."""


def settle(connection: Connection, next_state: NextState, frame: Frame | None = None) -> Settled:
    """Store what came after a turn. The first one stays, unless it is weak and the new one is not: that replaces it,
    takes back a sample that waits, and has the turn judged again. `frame` is that of the request that brought it; it is
    weak where the turn's own differs in both parts, but for a tool's result, which answers the turn itself. In an
    attempt what the user's role says is the environment's.

    `firm` or `weak`: such a next state stands now. "": nothing was stored, as the turn had a firm one, or its episode
    had ended before the next turn came. Raises MissingRecord if there is no such turn.
    """
    turn = turn_row(connection, next_state.turn_id)
    session, episode, ended, environment = connection.execute(
        "SELECT session, episode, ended, environment FROM turns JOIN episodes USING (session, episode) "
        "WHERE turns.id = ?",
        (turn,),
    ).fetchone()
    if next_state.next_turn_id is not None and ended is not None:
        return ""
    if environment and next_state.role == "user":
        next_state = msgspec.structs.replace(next_state, role="environment")
    if frame is not None and next_state.role != "tool" and _is_foreign(connection, turn, frame):
        next_state = msgspec.structs.replace(next_state, weak=True)
    standing = connection.execute("SELECT weak, body FROM next_states WHERE turn = ?", (turn,)).fetchone()
    if standing is not None:
        weak, body = standing
        if next_state.weak or not weak:
            return "weak" if weak else ""
        before = None
        with suppress(DamagedRecord):
            before = unpack_record(body, NextState).next_turn_id
        next_state = msgspec.structs.replace(next_state, instead_of=before)
        connection.execute("UPDATE samples SET state = 'superseded' WHERE turn = ? AND state = 'ready'", (turn,))
    connection.execute(
        "INSERT OR REPLACE INTO next_states (turn, role, weak, body) VALUES (?,?,?,?)",
        (turn, next_state.role, next_state.weak, pack_record(next_state)),
    )
    # A thumb is no reading of what comes after it.
    query = "SELECT 1 FROM judgements WHERE turn = ? AND feedback_id IS NULL"
    judged = standing is None and connection.value(query, turn)
    if not judged and (next_state.role == "user" or expected_episode(connection, session) != episode):
        queue_turn(connection, turn)
    return "weak" if next_state.weak else "firm"


def frame_of(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> Frame:
    """The frame of a request: its canonical messages and the tools that it offers."""
    system = messages[0] if messages and messages[0]["role"] == "system" else None
    return Frame(
        system=address(encode(system)) if system is not None else b"",
        tools=address(encode(list(tools)) if tools else b""),
    )


def _is_foreign(connection: Connection, turn: int, frame: Frame) -> bool:
    """True if a turn has another system text and other tools."""
    head, tools = connection.execute(
        "SELECT head, (SELECT digest FROM blobs WHERE blobs.id = tools) FROM turns WHERE id = ?", (turn,)
    ).fetchone()
    if (tools or address(b"")) == frame.tools:
        return False
    digest = b""
    if head is not None:
        digest, body = connection.execute("SELECT digest, body FROM blobs WHERE id = ?", (head,)).fetchone()
        with suppress(DamagedRecord):  # the turn itself is set aside when it is read
            if decode(unpack(body)).get("role") != "system":
                digest = b""
    return bool(digest != frame.system)


def add_feedback(connection: Connection, feedback: Feedback, *, late: bool = False) -> None:
    """Store explicit feedback; its turn waits for a judge (again), in an attempt from its outcome on. Idempotent by
    `feedback_id`. A word comes after all others on its turn, also if the clock was set back since; one that comes
    `late` has its place by its time.
    """
    turn = turn_row(connection, feedback.turn_id)
    if not late:
        latest = max((one.time for one in feedback_for(connection, feedback.turn_id)), default=0.0)
        feedback = msgspec.structs.replace(feedback, time=max(feedback.time, latest))
    added = connection.execute(
        "INSERT OR IGNORE INTO feedback (feedback_id, turn, body) VALUES (?,?,?)",
        (feedback.feedback_id, turn, pack_record(feedback)),
    ).rowcount
    if added:
        if not _is_attempted(connection, turn):
            queue_turn(connection, turn)
        connection.execute(
            "UPDATE sessions SET last_seen = max(last_seen, ?) WHERE id = (SELECT session FROM turns WHERE id = ?)",
            (feedback.time, turn),
        )


def add_outcome(connection: Connection, outcome: Outcome) -> bool:
    """Store an episode's outcome with all that it brings: its next state becomes that of the last main turn, unless
    that has one; turns wait for a judge (again); and with `done` the episode ends. Of an attempt all steps wait, of
    another episode those that a tool or an environment answered, which it outranks, and, where there is a reward, those
    not judged yet. Without an `episode` it is about the latest of those that it can be about.

    False: the same outcome is known, and no main turn came since; nothing changes. Raises MissingRecord if there is no
    such session or episode.
    """
    session = connection.value("SELECT id FROM sessions WHERE session_id = ?", outcome.session_id)
    if session is None:
        raise MissingRecord(f"the journal has no session {outcome.session_id}; post outcomes of sessions it has served")
    episode = outcome.episode
    if episode is None:
        episode = max(judged_episodes(connection, outcome.session_id), default=0)
        outcome = msgspec.structs.replace(outcome, episode=episode)
    found = connection.execute(
        "SELECT environment, train FROM episodes WHERE session = ? AND episode = ?", (session, episode)
    ).fetchone()
    if found is None:
        raise MissingRecord(f"session {outcome.session_id} has no episode {episode}")
    attempt, train = found
    if _is_repeated(connection, session, outcome):
        return False
    if train:
        _take_outcome(connection, session, outcome, attempt=attempt)
    if outcome.done:
        close_episode(connection, session, episode, "outcome")
    return True


def _take_outcome(connection: Connection, session: int, outcome: Outcome, *, attempt: bool) -> None:
    connection.execute(
        f"INSERT INTO outcomes (session, episode, body, last_turn) VALUES (?1,?2,?3,({_LAST_TURN}))",
        (session, outcome.episode, pack_record(outcome)),
    )
    if expected_episode(connection, session) == outcome.episode:
        forget_expected(connection, session)
    last = last_main_turn(connection, outcome.session_id, outcome.episode)
    if outcome.next_state is not None and last is not None:
        text = outcome.next_state
        settle(connection, NextState(turn_id=last.turn_id, role="environment", text=text, source="outcome"))
    turns = connection.column(
        f"SELECT id FROM turns WHERE session = ?1 AND kind = 'main' AND episode = ?2 AND CASE WHEN ?3 "
        f"THEN {is_step('turns')} OR EXISTS (SELECT 1 FROM feedback WHERE feedback.turn = turns.id) "
        "ELSE EXISTS (SELECT 1 FROM next_states WHERE turn = turns.id AND role != 'user') "
        "OR (?4 AND NOT EXISTS (SELECT 1 FROM judgements WHERE turn = turns.id)) END",
        *(session, outcome.episode, attempt, outcome.reward is not None),
    )
    for turn in turns:
        queue_turn(connection, turn)


def _is_repeated(connection: Connection, session: int, outcome: Outcome) -> bool:
    """True if this was the episode's latest outcome already, and no main turn came since."""
    row = connection.execute(
        f"SELECT body, last_turn IS ({_LAST_TURN}) FROM outcomes WHERE session = ?1 AND episode = ?2 "
        "ORDER BY id DESC LIMIT 1",
        (session, outcome.episode),
    ).fetchone()
    if row is None:
        return False
    with suppress(DamagedRecord):
        return bool(row[1]) and msgspec.structs.replace(unpack_record(row[0], Outcome), time=outcome.time) == outcome
    return False


def judged_episodes(connection: Connection, session_id: str) -> list[int]:
    """The episodes of a session that an outcome can be about, oldest first: attempts, and those with a main turn."""
    return connection.column(
        "SELECT episode FROM episodes JOIN sessions ON sessions.id = episodes.session WHERE session_id = ? "
        "AND (environment OR EXISTS (SELECT 1 FROM turns WHERE turns.session = episodes.session AND kind = 'main' "
        "AND turns.episode = episodes.episode)) ORDER BY episode",
        session_id,
    )


def expect_outcome(connection: Connection, session_id: str) -> int | None:
    """An outcome is to come for the session's open episode: until then turns in it that a tool or an environment
    answers wait for no judge. The episode's number, `None` if none is open.
    """
    session, episode = open_episode_of(connection, session_id)
    if session is not None and episode is not None:
        expect(connection, session, episode)
    return episode


def add_judgement(connection: Connection, judgement: Judgement) -> None:
    """Store a judgement; its turn no longer waits, unless feedback came after the one that `feedback_id` names.

    A judge that saw feedback, even a mere comment, must name the latest it saw: otherwise the turn is offered
    again. So is one whose judgement names (`next_turn_id`) a next state that was replaced meanwhile. The column `hint`
    holds wishes of people alone; the record holds every hint.
    """
    wish = judgement.hint if judgement.hint_role == "user" else None
    turn = turn_row(connection, judgement.turn_id)
    connection.execute(
        "INSERT INTO judgements (id, turn, feedback_id, score, hint, body) VALUES (?,?,?,?,?,?)",
        (last_judgement(connection) + 1, turn, judgement.feedback_id, judgement.score, wish, pack_record(judgement)),
    )
    _count_votes(connection, judgement)
    end_work(connection, "judge", [judgement.turn_id])
    replaced = judgement.next_turn_id is not None and _replaced(connection, turn, judgement.next_turn_id)
    if replaced or _newer_feedback(connection, turn):
        queue_turn(connection, turn)
    else:
        connection.execute("DELETE FROM judge_queue WHERE turn = ?", (turn,))


def describe_judgement(judgement: Judgement) -> str:
    """The log line about a judgement."""
    return f"{judgement.turn_id} is judged {judgement.score} by {judgement.judge or judgement.signal}"


def describe_quarantine(quarantine: Quarantine) -> str:
    """The log line about a turn that is set aside."""
    return f"{quarantine.turn_id} is set aside: {quarantine.reason}"


def add_quarantine(connection: Connection, quarantine: Quarantine) -> None:
    """Take a turn out of training, its waiting sample included; the latest reason counts. Newer feedback makes it
    wait for a judge again.
    """
    turn = turn_row(connection, quarantine.turn_id)
    quarantine_turn(connection, turn, quarantine.reason, quarantine.time)
    end_work(connection, "judge", [quarantine.turn_id])
    judged = connection.value("SELECT 1 FROM judgements WHERE turn = ?", turn)
    if not judged or not _newer_feedback(connection, turn):
        connection.execute("DELETE FROM judge_queue WHERE turn = ?", (turn,))


def set_aside_damaged(connection: Connection, turn: int, reason: str) -> None:
    """Take a turn that cannot be read out of training and out of every queue, for good."""
    quarantine_turn(connection, turn, reason, now())
    for queue in ("judge_queue", "audit_queue"):
        connection.execute(f"DELETE FROM {queue} WHERE turn = ?", (turn,))


def unjudged(connection: Connection, limit: int, *, offset: int = 0, explicit: bool = False) -> list[Turn]:
    """Turns that wait for a judge, oldest first: main, complete, trainable, with a next state, feedback or an
    outcome. The first `offset` of them are left out; with `explicit` all those without feedback or an outcome are.

    A turn whose feedback is newer than its judgement is among them, even when its sample was already consumed.
    """
    turns = connection.column(
        f"SELECT judge_queue.turn FROM judge_queue {_EXPLICIT if explicit else ''} ORDER BY judge_queue.turn "
        "LIMIT ? OFFSET ?",
        *(limit, offset),
    )
    return [read_turn(connection, turn) for turn in turns]


def next_state(connection: Connection, turn_id: str) -> NextState | None:
    """The next state of a turn."""
    query = f"SELECT body FROM next_states WHERE turn = {_ROW}"
    return next(iter(_records(connection, NextState, query, turn_id)), None)


def feedback_for(connection: Connection, turn_id: str) -> list[Feedback]:
    """Explicit feedback on a turn in the order in which it was said: the latest word counts."""
    row = connection.value(_ROW[1:-1], turn_id)
    return [] if row is None else feedback_of(connection, row)


def session_feedback(connection: Connection, session_id: str, source: str) -> list[Feedback]:
    """Of a session's latest hundred pieces of explicit feedback those of a source, in the order of their coming."""
    query = (
        "SELECT body FROM feedback JOIN turns ON turns.id = feedback.turn "
        "JOIN sessions ON sessions.id = turns.session WHERE session_id = ? ORDER BY feedback.id DESC LIMIT 100"
    )
    return [one for one in reversed(_records(connection, Feedback, query, session_id)) if one.source == source]


def judgements(connection: Connection, turn_id: str) -> list[Judgement]:
    """Every judgement of a turn, the latest first."""
    query = f"SELECT body FROM judgements WHERE turn = {_ROW} ORDER BY id DESC"
    return _records(connection, Judgement, query, turn_id)


def judgement(connection: Connection, turn_id: str) -> Judgement | None:
    """The latest judgement of a turn."""
    return next(iter(judgements(connection, turn_id)), None)


def outcome(connection: Connection, session_id: str, episode: int | None = None) -> Outcome | None:
    """The latest outcome of a session, or of one of its episodes; those of older versions may be about any."""
    body = connection.value(
        "SELECT body FROM outcomes JOIN sessions ON sessions.id = session WHERE session_id = ?1 "
        "AND (?2 IS NULL OR episode IS NULL OR episode = ?2) ORDER BY outcomes.id DESC LIMIT 1",
        *(session_id, episode),
    )
    return None if body is None else unpack_record(body, Outcome)


def prompts_seen(connection: Connection, limit: int, *, images: bool = False) -> list[Turn]:
    """Complete main turns that a person answered, newest first, one a distinct prompt; with `images` those whose
    prompt shows some as well.
    """
    turns: dict[bytes, int] = {}
    rows = connection.execute(
        "SELECT turns.id, prompt_digest FROM next_states JOIN turns ON turns.id = next_states.turn "
        "WHERE role = 'user' AND kind = 'main' AND status = 'complete' AND (?1 OR image_spans = x'5b5d') "
        "AND NOT EXISTS (SELECT 1 FROM excluded WHERE excluded.turn = turns.id) "
        "ORDER BY next_states.turn DESC",
        (images,),
    )
    for turn, prompt in rows:
        if len(turns) >= limit:
            break
        turns.setdefault(prompt, turn)
    return intact_turns(connection, list(turns.values()))


def recent_hints(connection: Connection, limit: int) -> list[str]:
    """The latest distinct hints from people, newest last."""
    query = "SELECT hint FROM judgements WHERE hint IS NOT NULL GROUP BY hint ORDER BY max(id) DESC LIMIT ?"
    return connection.column(query, limit)[::-1]


def hint_mentions(connection: Connection, numbers: Sequence[int]) -> list[tuple[int, str]]:
    """The hints from people in the judgements with these numbers, with the number; none of excluded turns."""
    marks = ",".join("?" * len(numbers))
    query = f"SELECT id, hint FROM judgements WHERE hint IS NOT NULL AND id IN ({marks}) AND {_NOT_EXCLUDED}"
    return [(int(number), str(hint)) for number, hint in connection.execute(query, tuple(numbers))]


def hints_after(connection: Connection, number: int, limit: int) -> list[tuple[int, str]]:
    """The last `limit` mentions of hints from people in judgements after this one, each as often as it was given, with
    the judgement's number; oldest first.
    """
    rows = connection.execute(
        f"SELECT id, hint FROM judgements WHERE hint IS NOT NULL AND id > ? AND {_NOT_EXCLUDED} "
        "ORDER BY id DESC LIMIT ?",
        (number, limit),
    ).fetchall()
    return [(int(number), str(hint)) for number, hint in rows[::-1]]


def accepted_answers(connection: Connection, limit: int) -> list[tuple[int, str]]:
    """The turns that people accepted among the last `limit` judgements (a positive score by what they wrote next or
    by feedback, and no later word against it), with the judgement's number, newest first.
    """
    rows = connection.execute(
        "SELECT judgements.id, turn_id FROM judgements JOIN turns ON turns.id = turn WHERE score > 0 "
        "AND judgements.id > (SELECT coalesce(max(id), 0) FROM judgements) - ? "
        "AND NOT EXISTS (SELECT 1 FROM excluded WHERE excluded.turn = turns.id) "
        "AND NOT EXISTS (SELECT 1 FROM judgements AS later WHERE later.turn = turns.id "
        "AND later.id > judgements.id) AND (feedback_id IS NOT NULL "
        "OR EXISTS (SELECT 1 FROM next_states WHERE next_states.turn = turns.id AND role = 'user')) "
        "ORDER BY judgements.id DESC",
        (limit,),
    )
    return [(int(number), str(turn_id)) for number, turn_id in rows]


def later_main_turns(connection: Connection, turn_id: str, until: float = math.inf) -> int:
    """The number of complete main turns that came after this one in its episode, up to a time (Unix seconds)."""
    count: int = connection.value(
        "SELECT count(*) FROM turns JOIN turns AS one ON one.session = turns.session "
        "AND one.episode = turns.episode WHERE one.turn_id = ? AND turns.kind = 'main' "
        "AND turns.status = 'complete' AND (turns.arrived, turns.id) > (one.arrived, one.id) "
        "AND turns.arrived <= ?",
        *(turn_id, until),
    )
    return count


def left_out(connection: Connection, limit: int) -> list[list[str]]:
    """Ended episodes whose judged main turns were never given a score and none of which waits for a judge: the ids
    of those turns, newest first.
    """
    query = (
        "SELECT turn_id FROM turns WHERE session = ? AND episode = ? AND kind = 'main' AND EXISTS "
        "(SELECT 1 FROM judgements WHERE turn = turns.id) ORDER BY turns.id DESC"
    )
    episodes = connection.execute(_LEFT_OUT, (limit,)).fetchall()
    return [connection.column(query, *episode) for episode in episodes]


def vote_counts(connection: Connection) -> tuple[int, int, int, int]:
    """Judgements there ever were, those without a score, votes, and votes that failed."""
    found = connection.value("SELECT value FROM controls WHERE key = ?", _VOTES)
    try:
        judgements, without_score, votes, failed = json.loads(found) if found else (0, 0, 0, 0)
    except (ValueError, TypeError):  # damaged: counted from here on
        return 0, 0, 0, 0
    return judgements, without_score, votes, failed


def _count_votes(connection: Connection, judgement: Judgement) -> None:
    """Counted as they are written, so that no query has to; forgetting a session takes nothing off."""
    votes = judgement.votes
    new = (1, judgement.score is None, len(votes), sum(bool(vote.failure) for vote in votes))
    counts = json.dumps([count + more for count, more in zip(vote_counts(connection), new, strict=True)])
    connection.execute("INSERT OR REPLACE INTO controls (key, value) VALUES (?,?)", (_VOTES, counts))


def words_after(connection: Connection, turn: int) -> str:
    """The words that came after the turn of a row: feedback if any has some, else the next state; cut to
    `LONGEST_WORDS`.
    """
    with suppress(DamagedRecord):
        said = [one.text for one in feedback_of(connection, turn) if one.text]
        body = connection.value("SELECT body FROM next_states WHERE turn = ?", turn)
        words = said[-1] if said else "" if body is None else unpack_record(body, NextState).text
        return words[:LONGEST_WORDS]
    return ""


def records_of(connection: Connection, turn: int) -> list[msgspec.Struct]:
    """The next state, feedback and judgements of a row. Raises `DamagedRecord`."""
    tables: dict[str, type[msgspec.Struct]] = {
        "next_states": NextState, "feedback": Feedback, "judgements": Judgement,
    }  # fmt: skip
    return [
        unpack_record(body, record)
        for table, record in tables.items()
        for body in connection.column(f"SELECT body FROM {table} WHERE turn = ?", turn)
    ]


def _records(connection: Connection, record: type[_T], query: str, key: str) -> list[_T]:
    row = connection.value(_ROW[1:-1], key)
    with naming_row(row) if row is not None else nullcontext():
        return [unpack_record(body, record) for body in connection.column(query, key)]


def queue_turn(connection: Connection, turn: int) -> None:
    """Let the turn of a row wait for a judge, if it may be trained on and no person has excluded it."""
    connection.execute(
        "INSERT OR IGNORE INTO judge_queue SELECT id FROM turns "
        "WHERE id = ? AND kind = 'main' AND status = 'complete' AND untrainable = '' AND id NOT IN (SELECT turn "
        "FROM excluded)",
        (turn,),
    )


def _is_attempted(connection: Connection, turn: int) -> bool:
    """True if a turn is a step of an attempt whose outcome is still to come."""
    session, episode, environment = connection.execute(
        "SELECT session, episode, environment FROM turns JOIN episodes USING (session, episode) WHERE turns.id = ?",
        (turn,),
    ).fetchone()
    return bool(environment) and expected_episode(connection, session) == episode


def _replaced(connection: Connection, turn: int, next_turn_id: str) -> bool:
    """True if the turn's next state came instead of the one that this request brought."""
    body = connection.value("SELECT body FROM next_states WHERE turn = ?", turn)
    with suppress(DamagedRecord):
        return body is not None and unpack_record(body, NextState).instead_of == next_turn_id
    return False


def _newer_feedback(connection: Connection, turn: int) -> bool:
    """True if the last word on the turn is another one than its latest judgement saw. A word that was said before that
    and came late changes nothing.
    """
    said = feedback_of(connection, turn)
    query = "SELECT feedback_id FROM judgements WHERE turn = ? ORDER BY id DESC LIMIT 1"
    return bool(said) and connection.value(query, turn) != said[-1].feedback_id


def feedback_of(connection: Connection, turn: int) -> list[Feedback]:
    """The feedback on the turn of a row in the order in which it was said."""
    with naming_row(turn):
        bodies = connection.column("SELECT body FROM feedback WHERE turn = ? ORDER BY id", turn)
        return sorted((unpack_record(body, Feedback) for body in bodies), key=lambda one: one.time)


def quarantine_turn(connection: Connection, turn: int, reason: str, time: float) -> None:
    """Take the turn of a row out of training."""
    connection.execute("INSERT OR REPLACE INTO quarantines (turn, reason, time) VALUES (?,?,?)", (turn, reason, time))
    connection.execute("UPDATE samples SET state = 'quarantined' WHERE turn = ? AND state = 'ready'", (turn,))
