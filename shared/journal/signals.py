"""What is known about a turn after it: next state, feedback, outcome, judgement, quarantine; and which turns wait for a
judge.
"""

from __future__ import annotations

import math
import sqlite3
from typing import TypeVar

import msgspec

from openclaw_rl.shared.errors import JournalError
from openclaw_rl.shared.journal import encoding
from openclaw_rl.shared.journal.sessions import Sessions, expect, expected_episode, forget_expected, open_episode_of
from openclaw_rl.shared.journal.tally import tally
from openclaw_rl.shared.records import Feedback, Judgement, NextState, Outcome, Quarantine, Turn

_T = TypeVar("_T")

_LEFT_OUT = """
SELECT DISTINCT session, episode FROM judgements JOIN turns ON turns.id = turn
WHERE score IS NULL AND kind = 'main'
  AND EXISTS (SELECT 1 FROM episodes WHERE episodes.session = turns.session AND episodes.episode = turns.episode
              AND ended IS NOT NULL)
  AND NOT EXISTS (SELECT 1 FROM turns AS other WHERE other.session = turns.session AND other.episode = turns.episode
                  AND other.kind = 'main' AND (EXISTS (SELECT 1 FROM judge_queue WHERE judge_queue.turn = other.id)
                  OR EXISTS (SELECT 1 FROM judgements AS told WHERE told.turn = other.id AND told.score IS NOT NULL)))
LIMIT ?
"""

_TOLD = """
JOIN turns ON turns.id = judge_queue.turn
WHERE EXISTS (SELECT 1 FROM feedback WHERE feedback.turn = turns.id)
   OR EXISTS (SELECT 1 FROM outcomes WHERE outcomes.session = turns.session)
"""


class Signals(Sessions):
    """The part of the journal that holds what came back on turns."""

    def settle(self, next_state: NextState) -> bool:
        """Store what came after a turn; the first one stays. False if the turn already had one, or if its episode had
        ended before the next turn came; JournalError if there is no such turn.
        """
        with self._writing() as connection:
            turn = _turn_row(connection, next_state.turn_id)
            if next_state.next_turn_id is not None and _episode_ended(connection, turn):
                return False
            added = connection.execute(
                "INSERT OR IGNORE INTO next_states (turn, role, body) VALUES (?,?,?)",
                (turn, next_state.role, _body(next_state)),
            ).rowcount
            judged = connection.execute("SELECT 1 FROM judgements WHERE turn = ?", (turn,)).fetchone()
            if added and not judged and (next_state.role == "user" or not _outcome_is_to_come(connection, turn)):
                _queue(connection, turn)
            return bool(added)

    def add_feedback(self, feedback: Feedback) -> None:
        """Store explicit feedback; its turn waits for a judge (again). Idempotent by `feedback_id`."""
        with self._writing() as connection:
            turn = _turn_row(connection, feedback.turn_id)
            added = connection.execute(
                "INSERT OR IGNORE INTO feedback (feedback_id, turn, body) VALUES (?,?,?)",
                (feedback.feedback_id, turn, _body(feedback)),
            ).rowcount
            if added:
                _queue(connection, turn)
                connection.execute(
                    "UPDATE sessions SET last_seen = max(last_seen, ?) "
                    "WHERE id = (SELECT session FROM turns WHERE id = ?)",
                    (feedback.time, turn),
                )

    def add_outcome(self, outcome: Outcome) -> None:
        """Store a session's outcome. Main turns of its latest episode wait for a judge (again): those that a tool or an
        environment answered, which it outranks, and, where there is a reward, those not judged yet.
        """
        with self._writing() as connection:
            found = connection.execute("SELECT id FROM sessions WHERE session_id = ?", (outcome.session_id,)).fetchone()
            if found is None:
                raise JournalError(
                    f"journal {self.path} has no session {outcome.session_id}; post outcomes of sessions it has served"
                )
            connection.execute("INSERT INTO outcomes (session, body) VALUES (?,?)", (found[0], _body(outcome)))
            forget_expected(connection, found[0])
            turns = connection.execute(
                "SELECT id FROM turns WHERE session = ?1 AND kind = 'main' AND episode = "
                "(SELECT max(episode) FROM turns WHERE session = ?1 AND kind = 'main') "
                "AND (EXISTS (SELECT 1 FROM next_states WHERE turn = turns.id AND role != 'user') "
                "OR (?2 AND NOT EXISTS (SELECT 1 FROM judgements WHERE turn = turns.id)))",
                (*found, outcome.reward is not None),
            ).fetchall()
            for (turn,) in turns:
                _queue(connection, turn)

    def expect_outcome(self, session_id: str) -> int | None:
        """An outcome is to come for the session's open episode: until then turns in it that a tool or an environment
        answers wait for no judge. The episode's number, `None` if none is open.
        """
        with self._writing() as connection:
            session, episode = open_episode_of(connection, session_id)
            if session is not None and episode is not None:
                expect(connection, session, episode)
            return episode

    def add_judgement(self, judgement: Judgement) -> None:
        """Store a judgement; its turn no longer waits, unless feedback came after the one that `feedback_id` names.

        A judge that saw feedback, even a mere comment, must name the latest it saw: otherwise the turn is offered
        again.
        """
        with self._writing() as connection:
            turn = _turn_row(connection, judgement.turn_id)
            connection.execute(
                "INSERT INTO judgements (turn, feedback_id, score, hint, body) VALUES (?,?,?,?,?)",
                (turn, judgement.feedback_id, judgement.score, judgement.hint, _body(judgement)),
            )
            tally(connection, judgement)
            if not _newer_feedback(connection, turn):
                connection.execute("DELETE FROM judge_queue WHERE turn = ?", (turn,))

    def add_quarantine(self, quarantine: Quarantine) -> None:
        """Take a turn out of training, its waiting sample included; the latest reason counts. Newer feedback makes it
        wait for a judge again.
        """
        with self._writing() as connection:
            turn = _turn_row(connection, quarantine.turn_id)
            _quarantine(connection, turn, quarantine.reason, quarantine.time)
            judged = connection.execute("SELECT 1 FROM judgements WHERE turn = ?", (turn,)).fetchone()
            if not judged or not _newer_feedback(connection, turn):
                connection.execute("DELETE FROM judge_queue WHERE turn = ?", (turn,))

    def unjudged(self, limit: int, *, offset: int = 0, told: bool = False) -> list[Turn]:
        """Turns that wait for a judge, oldest first: main, complete, trainable, with a next state, feedback or an
        outcome. The first `offset` of them are left out; with `told` all those without feedback or an outcome are.

        A turn whose feedback is newer than its judgement is among them, even when its sample was already consumed.
        """
        with self._reading() as connection:
            rows = connection.execute(
                f"SELECT judge_queue.turn FROM judge_queue {_TOLD if told else ''} ORDER BY judge_queue.turn "
                "LIMIT ? OFFSET ?",
                (limit, offset),
            ).fetchall()
            return [self._turn(connection, turn) for (turn,) in rows]

    def next_state(self, turn_id: str) -> NextState | None:
        """What came after a turn."""
        found = self._bodies(NextState, "SELECT body FROM next_states WHERE turn = ?", turn_id)
        return found[0] if found else None

    def feedback_for(self, turn_id: str) -> list[Feedback]:
        """Explicit feedback on a turn in the order in which it was said: the latest word counts."""
        found = self._bodies(Feedback, "SELECT body FROM feedback WHERE turn = ? ORDER BY id", turn_id)
        return sorted(found, key=lambda one: one.time)

    def session_feedback(self, session_id: str, source: str) -> list[Feedback]:
        """Of a session's latest hundred pieces of explicit feedback those of a source, in the order of their coming."""
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT body FROM feedback JOIN turns ON turns.id = feedback.turn "
                "JOIN sessions ON sessions.id = turns.session WHERE session_id = ? ORDER BY feedback.id DESC LIMIT 100",
                (session_id,),
            ).fetchall()
        found = [msgspec.json.decode(encoding.unpack(body), type=Feedback) for (body,) in reversed(rows)]
        return [one for one in found if one.source == source]

    def judgement(self, turn_id: str) -> Judgement | None:
        """The latest judgement of a turn."""
        found = self._bodies(Judgement, "SELECT body FROM judgements WHERE turn = ? ORDER BY id DESC LIMIT 1", turn_id)
        return found[0] if found else None

    def outcome(self, session_id: str) -> Outcome | None:
        """The latest outcome of a session."""
        with self._reading() as connection:
            found = connection.execute(
                "SELECT body FROM outcomes JOIN sessions ON sessions.id = session WHERE session_id = ? "
                "ORDER BY outcomes.id DESC LIMIT 1",
                (session_id,),
            ).fetchone()
            return msgspec.json.decode(encoding.unpack(found[0]), type=Outcome) if found else None

    def prompts_seen(self, limit: int, *, images: bool = False) -> list[Turn]:
        """Complete main turns that a person answered, newest first, one a distinct prompt; with `images` those whose
        prompt shows some as well.
        """
        with self._reading() as connection:
            turns: dict[bytes, int] = {}
            rows = connection.execute(
                "SELECT turns.id, prompt_digest FROM next_states JOIN turns ON turns.id = next_states.turn "
                "WHERE role = 'user' AND kind = 'main' AND status = 'complete' AND (?1 OR image_spans = x'5b5d') "
                "ORDER BY next_states.turn DESC",
                (images,),
            )
            for turn, prompt in rows:
                if len(turns) >= limit:
                    break
                turns.setdefault(prompt, turn)
            return [self._turn(connection, turn) for turn in turns.values()]

    def recent_hints(self, limit: int) -> list[str]:
        """The latest distinct hints of judgements, newest last."""
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT hint FROM judgements WHERE hint IS NOT NULL GROUP BY hint ORDER BY max(id) DESC LIMIT ?",
                (limit,),
            )
            return [hint for (hint,) in rows][::-1]

    def hint_mentions(self, limit: int) -> list[tuple[int, str]]:
        """The hints among the last `limit` judgements, each as often as it was given, with the judgement's number,
        newest first.
        """
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT id, hint FROM judgements WHERE hint IS NOT NULL AND id > (SELECT coalesce(max(id), 0) FROM "
                "judgements) - ? ORDER BY id DESC",
                (limit,),
            )
            return [(int(number), str(hint)) for number, hint in rows]

    def accepted_answers(self, limit: int) -> list[tuple[int, str]]:
        """The turns that people accepted among the last `limit` judgements (a positive score by what they wrote next or
        by feedback, and no later word against it), with the judgement's number, newest first.
        """
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT judgements.id, turn_id FROM judgements JOIN turns ON turns.id = turn WHERE score > 0 "
                "AND judgements.id > (SELECT coalesce(max(id), 0) FROM judgements) - ? "
                "AND NOT EXISTS (SELECT 1 FROM judgements AS later WHERE later.turn = turns.id "
                "AND later.id > judgements.id) AND (feedback_id IS NOT NULL "
                "OR EXISTS (SELECT 1 FROM next_states WHERE next_states.turn = turns.id AND role = 'user')) "
                "ORDER BY judgements.id DESC",
                (limit,),
            )
            return [(int(number), str(turn_id)) for number, turn_id in rows]

    def later_main_turns(self, turn_id: str, until: float = math.inf) -> int:
        """How many complete main turns came after this one in its episode, up to a time (Unix seconds)."""
        with self._reading() as connection:
            found = connection.execute(
                "SELECT count(*) FROM turns JOIN turns AS one ON one.session = turns.session "
                "AND one.episode = turns.episode WHERE one.turn_id = ? AND turns.kind = 'main' "
                "AND turns.status = 'complete' AND (turns.arrived, turns.id) > (one.arrived, one.id) "
                "AND turns.arrived <= ?",
                (turn_id, until),
            ).fetchone()
            return int(found[0])

    def left_out(self, limit: int) -> list[list[str]]:
        """Ended episodes whose judged main turns were never given a score and none of which waits for a judge: the ids
        of those turns, newest first.
        """
        with self._reading() as connection:
            found = connection.execute(_LEFT_OUT, (limit,)).fetchall()
            return [
                [
                    turn_id
                    for (turn_id,) in connection.execute(
                        "SELECT turn_id FROM turns WHERE session = ? AND episode = ? AND kind = 'main' AND EXISTS "
                        "(SELECT 1 FROM judgements WHERE turn = turns.id) ORDER BY turns.id DESC",
                        episode,
                    )
                ]
                for episode in found
            ]

    def _bodies(self, record: type[_T], query: str, turn_id: str) -> list[_T]:
        with self._reading() as connection:
            found = connection.execute("SELECT id FROM turns WHERE turn_id = ?", (turn_id,)).fetchone()
            rows = connection.execute(query, found).fetchall() if found else []
            return [msgspec.json.decode(encoding.unpack(body), type=record) for (body,) in rows]


def _body(record: msgspec.Struct) -> bytes:
    return encoding.pack(msgspec.json.encode(record))


def _turn_row(connection: sqlite3.Connection, turn_id: str) -> int:
    found = connection.execute("SELECT id FROM turns WHERE turn_id = ?", (turn_id,)).fetchone()
    if found is None:
        raise JournalError(f"the journal has no turn {turn_id}; it was never recorded, or its session was forgotten")
    return int(found[0])


def _episode_ended(connection: sqlite3.Connection, turn: int) -> bool:
    found = connection.execute(
        "SELECT ended FROM turns JOIN episodes USING (session, episode) WHERE turns.id = ?", (turn,)
    ).fetchone()
    return found is not None and found[0] is not None


def _queue(connection: sqlite3.Connection, turn: int) -> None:
    connection.execute(
        "INSERT OR IGNORE INTO judge_queue SELECT id FROM turns "
        "WHERE id = ? AND kind = 'main' AND status = 'complete' AND untrainable = ''",
        (turn,),
    )


def _outcome_is_to_come(connection: sqlite3.Connection, turn: int) -> bool:
    session, episode = connection.execute("SELECT session, episode FROM turns WHERE id = ?", (turn,)).fetchone()
    return bool(expected_episode(connection, session) == episode)


def _newer_feedback(connection: sqlite3.Connection, turn: int) -> bool:
    """Whether the turn has feedback that its latest judgement did not see."""
    latest = connection.execute("SELECT id FROM feedback WHERE turn = ? ORDER BY id DESC LIMIT 1", (turn,)).fetchone()
    if latest is None:
        return False
    seen = connection.execute(
        "SELECT feedback.id FROM judgements JOIN feedback ON feedback.feedback_id = judgements.feedback_id "
        "WHERE judgements.turn = ? ORDER BY judgements.id DESC LIMIT 1",
        (turn,),
    ).fetchone()
    return seen is None or bool(latest[0] > seen[0])


def _quarantine(connection: sqlite3.Connection, turn: int, reason: str, time: float) -> None:
    connection.execute("INSERT OR REPLACE INTO quarantines (turn, reason, time) VALUES (?,?,?)", (turn, reason, time))
    connection.execute("UPDATE samples SET state = 'quarantined' WHERE turn = ? AND state = 'ready'", (turn,))
