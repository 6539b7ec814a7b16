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

from openclaw_rl.shared.journal.sqlite import Connection
from openclaw_rl.shared.journal.tallies import tally
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
    reasons = tally(connection, "set aside")
    places = tally(connection, "places")
    return {
        "settled": sum(places.values()),
        **{place: places.get(place, 0) for place in PLACES},
        "quarantined": reasons,
        "dropped": sum(count for reason, count in reasons.items() if reason.startswith(STALE)),
    }


def wrong_places(connection: Connection) -> int:
    """The number of turns whose place is not the one that the other tables say. Reads every turn."""
    return int(
        connection.value(
            "SELECT count(*) FROM (SELECT turn, place FROM turn_places EXCEPT SELECT turn, place FROM places)"
        )
    )


def waiting_count(connection: Connection) -> int:
    """The number of turns that wait for a judge."""
    return int(connection.value("SELECT count(*) FROM judge_queue"))


def waiting_rows(connection: Connection) -> tuple[int, int]:
    """The rows of the oldest and the newest turn that wait for a judge; zeros if none does."""
    query = "SELECT (SELECT min(turn) FROM judge_queue), (SELECT max(turn) FROM judge_queue)"
    oldest, newest = connection.execute(query).fetchone()
    return oldest or 0, newest or 0
