"""Verdicts of people by the version that answered, or by day."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Literal

from openclaw_rl.shared.errors import DamagedRecord
from openclaw_rl.shared.journal.encoding import unpack_record
from openclaw_rl.shared.journal.sqlite import Connection
from openclaw_rl.shared.records import Feedback

By = Literal["version", "day"]

_KEYS = {
    "version": "json_extract(CAST(versions AS TEXT), '$[0][0]')",
    "day": "date(arrived, 'unixepoch')",
}
_VERDICTS = """
SELECT {key}, count(*), avg(score), sum(score < 0)
FROM judgements JOIN turns ON turns.id = judgements.turn JOIN sessions ON sessions.id = session
WHERE score IS NOT NULL AND kind = 'main' AND (?1 IS NULL OR owner = ?1)
  AND NOT EXISTS (SELECT 1 FROM judgements AS later WHERE later.turn = turns.id AND later.id > judgements.id)
  AND (EXISTS (SELECT 1 FROM next_states WHERE next_states.turn = turns.id AND role = 'user')
       OR EXISTS (SELECT 1 FROM feedback WHERE feedback.turn = turns.id))
GROUP BY 1 ORDER BY 1
"""
_THUMBS = """
SELECT {key}, feedback.body FROM feedback JOIN turns ON turns.id = feedback.turn
JOIN sessions ON sessions.id = session WHERE ?1 IS NULL OR owner = ?1
"""


def verdicts(connection: Connection, by: By, owner: str | None = None) -> list[dict[str, Any]]:
    """The latest scores of turns that a person reacted to, by the version that began the answer or by the day (UTC) of
    the request: their number, mean, `complaints` (scores below 0), and the explicit thumbs.
    """
    found: dict[Any, dict[str, Any]] = {}
    nothing = {"n": 0, "mean": None, "complaints": 0, "thumbs_up": 0, "thumbs_down": 0}
    for value, count, mean, complaints in connection.execute(_VERDICTS.format(key=_KEYS[by]), (owner,)):
        found[value] = {"key": value, **nothing, "n": count, "mean": mean, "complaints": complaints}
    for value, body in connection.execute(_THUMBS.format(key=_KEYS[by]), (owner,)):
        score = None
        with suppress(DamagedRecord):
            score = unpack_record(body, Feedback).score
        entry = found.setdefault(value, {"key": value, **nothing})
        if score:
            entry["thumbs_up" if score > 0 else "thumbs_down"] += 1
    return sorted((one for one in found.values() if one["key"] is not None), key=lambda one: one["key"])
