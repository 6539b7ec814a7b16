"""Wishes: the hints of people in words, how often each was said and where, and whether it is taught.

The balances of the learner's memory (`learner.hints`) say which have fallen. A wish that a person drops stays dropped:
each judgement that said it is marked, and what says the same later is dropped with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from openclaw_rl.shared.errors import DamagedRecord, MissingRecord
from openclaw_rl.shared.journal.encoding import unpack_record
from openclaw_rl.shared.journal.signals import words_after
from openclaw_rl.shared.journal.sqlite import Connection
from openclaw_rl.shared.messages.wishes import key, same, same_key
from openclaw_rl.shared.records import Judgement, now

BALANCES = "hint balances"
"""The control that holds the balances: judgements by their numbers, no text."""

LISTED = 512
"""Wordings, the newest, that are looked at."""

SHOWN = 10
"""Mentions of a wish, the newest, that are named."""

_WORDINGS = """
SELECT hint, count(*), min(judgements.id), max(judgements.id)
FROM judgements JOIN turns ON turns.id = turn JOIN sessions ON sessions.id = session
WHERE hint IS NOT NULL AND (?1 IS NULL OR owner = ?1)
  AND NOT EXISTS (SELECT 1 FROM excluded WHERE excluded.turn = turns.id)
GROUP BY hint ORDER BY max(judgements.id) DESC LIMIT ?2
"""
_MENTIONS = """
SELECT turns.id, turn_id FROM judgements JOIN turns ON turns.id = turn JOIN sessions ON sessions.id = session
WHERE hint = ?1 AND (?2 IS NULL OR owner = ?2) ORDER BY judgements.id DESC LIMIT ?3
"""


class HintBalance(msgspec.Struct, array_like=True):
    """A hint, as the judgements that said it first and last, with its balance; `text` is its newest wording."""

    first: int
    last: int
    balance: float
    text: str = ""


class HintBalances(msgspec.Struct):
    """All hints, the oldest first, and the last judgements that were counted: as mentions, and as acceptances."""

    hints: list[HintBalance] = []
    mentions: int = 0
    accepted: int = 0


class _Wish(msgspec.Struct):
    words: frozenset[str]
    wordings: list[str]
    count: int
    first: int
    last: int


def wishes(connection: Connection, owner: str | None = None) -> list[dict[str, Any]]:
    """The wishes of an owner's people, or of all (`None`), the last said first. `id` is that of the first mention,
    `from` holds the newest ones, `state` is standing, outvoted (answers that people accepted contradict it) or dropped.
    """
    found: list[_Wish] = []
    for text, count, first, last in connection.execute(_WORDINGS, (owner, LISTED)).fetchall():
        words = key(text)
        known = next((wish for wish in found if same_key(wish.words, words)), None)
        if known is None:
            found.append(_Wish(words, [text], count, first, last))
        else:
            known.wordings.append(text)
            known.count, known.first = known.count + count, min(known.first, first)
    outvoted = [key(text) for text in _outvoted(connection)]
    dropped = [key(text) for text in dropped_wishes(connection)]
    items = []
    for wish in found:
        state = "outvoted" if any(same_key(wish.words, one) for one in outvoted) else "standing"
        state = "dropped" if any(same_key(wish.words, one) for one in dropped) else state
        items.append(
            {
                "id": str(wish.first),
                "text": wish.wordings[0],
                "count": wish.count,
                "first": _time(connection, wish.first),
                "last": _time(connection, wish.last),
                "from": _mentions(connection, wish.wordings, owner),
                "state": state,
            }
        )
    return items


def drop_wish(connection: Connection, wish: int) -> None:
    """Forget a wish, by the number of a judgement that said it: it is never taught again. Raises MissingRecord."""
    text = connection.value("SELECT hint FROM judgements WHERE id = ?", wish)
    if text is None:
        raise MissingRecord(f"the journal has no wish {wish}; `GET /rl/wishes` lists those that it has")
    wordings = connection.column("SELECT DISTINCT hint FROM judgements WHERE hint IS NOT NULL")
    for wording in wordings:
        if same(wording, text):
            connection.execute(
                "INSERT OR IGNORE INTO dropped_wishes (judgement, time) SELECT id, ? FROM judgements WHERE hint = ?",
                (now(), wording),
            )


def dropped_wishes(connection: Connection) -> list[str]:
    """The wordings of the wishes that a person dropped."""
    return connection.column(
        "SELECT DISTINCT hint FROM dropped_wishes JOIN judgements ON judgements.id = judgement WHERE hint IS NOT NULL"
    )


def _outvoted(connection: Connection) -> list[str]:
    """The newest wordings of the hints that have fallen."""
    stored = connection.value("SELECT value FROM controls WHERE key = ?", BALANCES)
    with suppress(msgspec.MsgspecError):  # damaged: the learner counts them again
        balances = msgspec.json.decode(stored, type=HintBalances) if stored else HintBalances()
        fallen = [hint.last for hint in balances.hints if hint.balance < 0]
        query = "SELECT hint FROM judgements WHERE id = ? AND hint IS NOT NULL"
        return [text for number in fallen for text in connection.column(query, number)]
    return []


def _mentions(connection: Connection, wordings: Sequence[str], owner: str | None) -> list[dict[str, str]]:
    rows = [row for text in wordings[:SHOWN] for row in connection.execute(_MENTIONS, (text, owner, SHOWN)).fetchall()]
    newest = sorted(rows, reverse=True)[:SHOWN]
    return [{"turn_id": turn_id, "words": words_after(connection, turn)} for turn, turn_id in newest]


def _time(connection: Connection, number: int) -> float:
    """When a judgement was made (Unix seconds), 0 where that cannot be read."""
    with suppress(DamagedRecord):
        return unpack_record(connection.value("SELECT body FROM judgements WHERE id = ?", number), Judgement).time
    return 0.0
