"""Conversations as people read them: sessions that can be searched, and their turns in pages, without token ids."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, time
from typing import Any

import msgspec

from openclaw_rl.shared.errors import DamagedRecord
from openclaw_rl.shared.journal.encoding import unpack_record
from openclaw_rl.shared.journal.sessions import turn_state
from openclaw_rl.shared.journal.signals import feedback_of
from openclaw_rl.shared.journal.sqlite import Connection
from openclaw_rl.shared.journal.turns import SPANS, read_message, title_of
from openclaw_rl.shared.messages.normalize import is_internal_context, text_of
from openclaw_rl.shared.records import Judgement, Message

LONGEST_TEXT = 20_000
"""Characters of one message in a transcript; the turn itself has all."""

DAMAGED: Message = {"role": "damaged", "content": "(this message is damaged)"}

_NEEDS_REVIEW = """
FROM judgements JOIN turns ON turns.id = judgements.turn WHERE score IS NULL AND kind = 'main'
  AND NOT EXISTS (SELECT 1 FROM judgements AS later WHERE later.turn = turns.id AND later.id > judgements.id)
  AND NOT EXISTS (SELECT 1 FROM feedback WHERE feedback.turn = turns.id)
  AND NOT EXISTS (SELECT 1 FROM excluded WHERE excluded.turn = turns.id)
"""
"""Turns that no judge could score and no person has spoken about."""

_OPEN = "EXISTS (SELECT 1 FROM episodes WHERE episodes.session = sessions.id AND ended IS NULL)"

_LISTED = f"""
SELECT sessions.id, session_id, title, policy, source, created, last_seen, {_OPEN},
  (SELECT count(*) FROM episodes WHERE episodes.session = sessions.id),
  (SELECT count(*) FROM turns WHERE session = sessions.id AND kind = 'main'),
  (SELECT count(*) FROM turns WHERE session = sessions.id AND kind = 'side'),
  (SELECT count(*) FROM turns JOIN next_states ON turn = turns.id WHERE session = sessions.id AND kind = 'main'),
  (SELECT count(DISTINCT turn) FROM turns JOIN samples ON turn = turns.id
   WHERE session = sessions.id AND state = 'consumed'),
  (SELECT count(*) {_NEEDS_REVIEW} AND session = sessions.id)
FROM sessions
"""
_COLUMNS = (
    *("session_id", "title", "policy", "source", "first", "last", "open", "episodes", "main", "side", "settled"),
    *("trained", "needs_review"),
)

_TURNS = """
SELECT id, turn_id, parent_turn_id, episode, kind, kind_reason, status, error, arrived, versions, answer,
  EXISTS (SELECT 1 FROM excluded WHERE excluded.turn = turns.id)
FROM turns WHERE session = ? AND id > ? ORDER BY id LIMIT ?
"""
_LEARNED = """
SELECT version, advantage FROM samples JOIN version_samples USING (sample_id) JOIN versions ON number = version
WHERE turn = ? AND versions.state != 'rejected' ORDER BY samples.id
"""
_DIFFERENCE = "SELECT base, shared_messages, answer FROM turns WHERE id = ?"
_OWN = "SELECT blob FROM turn_blobs WHERE turn = ? AND position >= 0 ORDER BY position"


class SessionFilter(msgspec.Struct, frozen=True):
    """The sessions that are asked for, each field "" or `None` for all: `query` words of the title or the id, `state`
    open or ended, `source`, `day` (`2026-01-31`, UTC), `review` whether a turn needs one, `owner`.
    """

    query: str = ""
    state: str = ""
    source: str = ""
    day: str = ""
    review: bool = False
    owner: str | None = None


def session_page(
    connection: Connection, wanted: SessionFilter, limit: int = 50, offset: int = 0, after: str = ""
) -> dict[str, Any]:
    """A page of sessions, last seen first: `total`, `next` (the `after` of the next page, `None` at the end) and
    `items`. `title` are the first words, `first` and `last` Unix seconds, `turns` all of them.
    """
    where, values = _where(wanted)
    total = connection.value(f"SELECT count(*) FROM sessions WHERE {where}", *values)
    if after:
        last, _, row = after.partition(":")
        where, values = f"{where} AND (last_seen, sessions.id) < (?, ?)", [*values, float(last), int(row)]
    rows = connection.execute(
        f"{_LISTED} WHERE {where} ORDER BY last_seen DESC, sessions.id DESC LIMIT ? OFFSET ?", (*values, limit, offset)
    ).fetchall()
    items = []
    for row, *columns in rows:
        item = dict(zip(_COLUMNS, columns, strict=True))
        item["title"] = _first_words(connection, row) if item["title"] is None else item["title"]
        item["state"] = "open" if item.pop("open") else "ended"
        items.append(item | {"turns": item["main"] + item["side"], "last_seen": item["last"]})
    more = bool(rows) and len(rows) == limit and offset + len(rows) < total
    return {"total": total, "next": f"{items[-1]['last']!r}:{rows[-1][0]}" if more else None, "items": items}


def oldest(connection: Connection) -> float | None:
    """When the oldest session began (Unix seconds); `None` without one."""
    found: float | None = connection.value("SELECT min(created) FROM sessions")
    return found


def _where(wanted: SessionFilter) -> tuple[str, list[object]]:
    conditions: list[str] = ["1"]
    values: list[object] = []
    if wanted.owner is not None:
        conditions, values = [*conditions, "owner = ?"], [*values, wanted.owner]
    if wanted.source:
        conditions, values = [*conditions, "source = ?"], [*values, wanted.source]
    for word in wanted.query.split():
        pattern = "%" + "".join(f"\\{one}" if one in "%_\\" else one for one in word) + "%"
        conditions.append("(coalesce(title, '') LIKE ? ESCAPE '\\' OR session_id LIKE ? ESCAPE '\\')")
        values += [pattern, pattern]
    if wanted.state:
        conditions.append(_OPEN if wanted.state == "open" else f"NOT {_OPEN}")
    if wanted.day:
        begins = datetime.combine(date.fromisoformat(wanted.day), time(), UTC).timestamp()
        conditions, values = [*conditions, "last_seen >= ? AND created < ?"], [*values, begins, begins + 86400]
    if wanted.review:
        conditions.append(f"sessions.id IN (SELECT session {_NEEDS_REVIEW})")
    return " AND ".join(conditions), values


def _first_words(connection: Connection, session: int) -> str:
    """The title of a session that was recorded before titles were, or whose first episode was forgotten."""
    first = connection.value(
        "SELECT id FROM turns WHERE session = ? AND kind = 'main' ORDER BY episode, arrived LIMIT 1", session
    )
    if first is None:
        return ""
    return title_of([_message(connection, blob) for blob in _Histories(connection).blobs(first)])


def transcript(connection: Connection, session_id: str, limit: int = 50, after: int = 0) -> dict[str, Any] | None:
    """A page of a session's turns in the order of their recording, as `session_page`; `None` without such a session.

    `new_messages` are those that the request added to the turn's parent, all of them at a root; long texts are cut
    (`cut`: their whole length). `advantage` is that of the last version that learned from it.
    """
    session = connection.value("SELECT id FROM sessions WHERE session_id = ?", session_id)
    if session is None:
        return None
    rows = connection.execute(_TURNS, (session, after, limit)).fetchall()
    histories = _Histories(connection)
    more = len(rows) == limit and connection.value(
        "SELECT 1 FROM turns WHERE session = ? AND id > ? LIMIT 1", session, rows[-1][0]
    )
    return {
        "total": connection.value("SELECT count(*) FROM turns WHERE session = ?", session),
        "next": str(rows[-1][0]) if more else None,
        "items": [_item(connection, histories, row) for row in rows],
    }


def _item(connection: Connection, histories: _Histories, row: Sequence[Any]) -> dict[str, Any]:
    turn, turn_id, parent, episode, kind, reason, status, error, arrived, spans, answer, excluded = row
    learned = connection.execute(_LEARNED, (turn,)).fetchall()
    score, state = turn_state(connection, turn)
    judgement = _judgement(connection, turn)
    feedback = []
    with suppress(DamagedRecord):
        feedback = feedback_of(connection, turn)
    said = _message(connection, answer)
    return {
        "turn_id": turn_id,
        "parent": parent,
        "episode": episode,
        "kind": kind,
        "reason": reason,
        "status": status,
        "error": error,
        "time": arrived,
        "new_messages": [_shown(one) for one in _new_messages(connection, histories.blobs(turn), parent is None)],
        "answer": {
            "text": text_of(said)[:LONGEST_TEXT],
            "reasoning": str(said.get("reasoning", ""))[:LONGEST_TEXT],
            "tool_calls": _calls(said),
        },
        "version": [span[0] for span in SPANS.decode(spans)],
        "score": score,
        "judged_by": "" if judgement is None else judgement.judge or judgement.signal,
        "hint": None if judgement is None else judgement.hint,
        "advantage": learned[-1][1] if learned else None,
        "state": state,
        "versions": [version for version, _ in learned],
        "feedback": [
            {"score": one.score, "text": one.text, "source": one.source, "time": one.time} for one in feedback
        ],
        "excluded": bool(excluded),
    }


def _judgement(connection: Connection, turn: int) -> Judgement | None:
    body = connection.value("SELECT body FROM judgements WHERE turn = ? ORDER BY id DESC LIMIT 1", turn)
    with suppress(DamagedRecord):
        return None if body is None else unpack_record(body, Judgement)
    return None


def _new_messages(connection: Connection, blobs: Sequence[int], root: bool) -> list[Message]:
    """The messages after the last answer in a history; at a root all."""
    found: list[Message] = []
    for blob in reversed(blobs):
        message = _message(connection, blob)
        if not root and message["role"] == "assistant":
            break
        found.append(message)
    return found[::-1]


def _shown(message: Message) -> dict[str, Any]:
    text, content = text_of(message), message["content"]
    shown: dict[str, Any] = {
        "role": message["role"],
        "text": text[:LONGEST_TEXT],
        "folded": message["role"] == "system" or is_internal_context(message),
        "images": 0 if isinstance(content, str) else sum(part["type"] != "text" for part in content),
    }
    if len(text) > LONGEST_TEXT:
        shown["cut"] = len(text)
    if message.get("tool_call_id"):
        shown["tool_call_id"] = message["tool_call_id"]
    return shown | ({"tool_calls": _calls(message)} if message.get("tool_calls") else {})


def _calls(message: Message) -> list[dict[str, Any]]:
    """The tool calls of a message, with their arguments as text."""
    calls = []
    for call in message.get("tool_calls") or ():
        arguments = call.get("arguments", "")
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        calls.append({"id": call.get("id", ""), "name": call.get("name", ""), "arguments": text[:LONGEST_TEXT]})
    return calls


def _message(connection: Connection, blob: int) -> Message:
    try:
        return read_message(connection, blob)
    except DamagedRecord:
        return DAMAGED


class _Histories:
    """The messages of turns, as rows of `blobs`. Each turn is a difference to another one, so that those of a page
    share most of the work.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._known: dict[int, tuple[list[int], int]] = {}

    def blobs(self, turn: int) -> list[int]:
        """The messages of a turn's request."""
        chain: list[tuple[int, int, int]] = []
        node: int | None = turn
        while node is not None and node not in self._known:
            base, shared, answer = self._connection.execute(_DIFFERENCE, (node,)).fetchone()
            chain.append((node, shared, answer))
            node = base
        before, last = self._known[node] if node is not None else ([], 0)
        for one, shared, answer in reversed(chain):
            before = [*[*before, last][:shared], *self._connection.column(_OWN, one)]
            last = answer
            self._known[one] = before, last
        return self._known[turn][0]
