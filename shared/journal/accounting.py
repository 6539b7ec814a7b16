"""Accounts of the turns that learning takes: the place of each settled one, and the age of those that wait.

A turn is settled when something came after it that a judge can see. Each settled turn is in exactly one place: that is
the conservation law, and a turn in none of them is lost.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from openclaw_rl.shared.journal.sessions import EXPECTED
from openclaw_rl.shared.journal.sqlite import Connection
from openclaw_rl.shared.journal.turns import SPANS

_WAITING = """
SELECT versions, sampling, keeps FROM turns JOIN (
  SELECT turn, id AS place, 0 AS queued,
    hint IS NOT NULL OR (explicit AND EXISTS (SELECT 1 FROM feedback WHERE feedback.turn = samples.turn)) AS keeps
  FROM samples WHERE state = 'ready' AND NOT EXISTS
    (SELECT 1 FROM turns AS member JOIN episodes USING (session, episode) WHERE member.id = samples.turn
     AND task_group != '' AND task_group NOT IN (SELECT value FROM json_each(?)))
  UNION ALL
  SELECT turn, turn, 1, 0 FROM judge_queue WHERE turn NOT IN (SELECT turn FROM samples WHERE state = 'ready')
) ON turn = turns.id ORDER BY queued, place
"""


LINE = """
line(number) AS (SELECT {} UNION SELECT parent FROM versions JOIN line USING (number) WHERE parent IS NOT NULL)
"""
"""The version of a query, and all that it descends from."""

LIVE_LINE = LINE.format("number FROM versions WHERE state IN ('live', 'candidate')")
"""The live version, one that is about to be, and all that they descend from."""

STALE = "stale"
"""The beginning of the reason why a turn that is too old is quarantined."""

_PLACES = f"""
WITH RECURSIVE {LIVE_LINE},
learned(turn, rejected, in_line) AS (
  SELECT turn, min(versions.state = 'rejected'), max(versions.state != 'rejected' AND version IN line)
  FROM samples JOIN version_samples USING (sample_id) JOIN versions ON number = version GROUP BY turn
),
sampled(turn, ready, known) AS (SELECT turn, max(state = 'ready'), max(state = 'known') FROM samples GROUP BY turn)
SELECT CASE
  WHEN judge_queue.turn IS NOT NULL THEN 'queued'
  WHEN ready THEN 'ready'
  WHEN in_line THEN 'consumed'
  WHEN rejected = 0 THEN 'rolled_back'
  WHEN rejected AND reason IS NOT NULL THEN 'rejected'
  WHEN reason IS NOT NULL AND (SELECT score FROM judgements WHERE judgements.turn = turns.id ORDER BY id DESC LIMIT 1)
    IS NULL AND EXISTS (SELECT 1 FROM judgements WHERE judgements.turn = turns.id) THEN 'without_score'
  WHEN reason IS NOT NULL THEN 'quarantined'
  WHEN known THEN 'known'
  WHEN sampled.turn IS NOT NULL THEN 'superseded'
  WHEN status != 'complete' OR untrainable != '' THEN 'not_trainable'
  WHEN coalesce(next_states.role, '') != 'user' AND EXISTS
    (SELECT 1 FROM controls WHERE key = '{EXPECTED}' || session AND CAST(value AS INTEGER) = episode)
    THEN 'awaiting_outcome'
  ELSE 'lost' END AS place, reason, count(*)
FROM turns LEFT JOIN judge_queue ON judge_queue.turn = turns.id LEFT JOIN sampled ON sampled.turn = turns.id
LEFT JOIN learned ON learned.turn = turns.id LEFT JOIN quarantines ON quarantines.turn = turns.id
LEFT JOIN next_states ON next_states.turn = turns.id
WHERE kind = 'main' AND (next_states.turn IS NOT NULL OR judge_queue.turn IS NOT NULL
  OR EXISTS (SELECT 1 FROM feedback WHERE feedback.turn = turns.id)
  OR EXISTS (SELECT 1 FROM judgements WHERE judgements.turn = turns.id))
GROUP BY place, CASE place WHEN 'quarantined' THEN reason END
"""

PLACES = (
    "queued", "ready", "consumed", "rolled_back", "rejected", "known", "without_score", "superseded",
    "awaiting_outcome", "not_trainable", "lost",
)  # fmt: skip
"""Places of a settled turn, besides `quarantined`."""


class _Origin(msgspec.Struct):
    """The part of a turn's sampling that says whether a version sampled it."""

    imported: bool = False


_ORIGIN = msgspec.json.Decoder(_Origin)


def backlog(connection: Connection, groups: Sequence[str] = ()) -> list[tuple[int, ...]]:
    """The versions of the tokens of each turn that waits for a step or for a judge, in the order of their steps. Those
    that no number of updates makes too old have none: imported ones, and those with a hint or a person's feedback. Of
    the samples in groups only those of the named ones wait for a step.
    """
    found: list[tuple[int, ...]] = []
    for spans, sampling, keeps in connection.execute(_WAITING, (json.dumps(list(groups)),)):
        ages: tuple[int, ...] = ()
        with suppress(msgspec.MsgspecError):  # a damaged turn is set aside where it is read
            if not keeps and not _ORIGIN.decode(sampling).imported:
                ages = tuple({span[0] for span in SPANS.decode(spans)})
        found.append(ages)
    return found


def accounting(connection: Connection) -> dict[str, Any]:
    """The number of settled turns, and of those in each of `PLACES`; in `quarantined` by reason. `consumed`: the live
    version has learned from it; `rolled_back`: only versions have that it does not descend from; `known`: a step found
    nothing to learn; `without_score`: the judge gave none. `dropped` are those among them that only became too old.
    """
    found: dict[str, Any] = dict.fromkeys(PLACES, 0)
    reasons: dict[str, int] = {}
    for place, reason, count in connection.execute(_PLACES):
        if place == "quarantined":
            reasons[reason] = count
        else:
            found[place] = count
    dropped = sum(count for reason, count in reasons.items() if reason.startswith(STALE))
    settled = sum(found.values()) + sum(reasons.values())
    return {"settled": settled, **found, "quarantined": reasons, "dropped": dropped}


def waiting_count(connection: Connection) -> int:
    """The number of turns that wait for a judge."""
    return int(connection.value("SELECT count(*) FROM judge_queue"))


def waiting_rows(connection: Connection) -> tuple[int, int]:
    """The rows of the oldest and the newest turn that wait for a judge; zeros if none does."""
    query = "SELECT (SELECT min(turn) FROM judge_queue), (SELECT max(turn) FROM judge_queue)"
    oldest, newest = connection.execute(query).fetchone()
    return oldest or 0, newest or 0
