"""Accounts of the turns that learning takes: those that wait, by the versions that sampled them."""

from __future__ import annotations

from contextlib import suppress

import msgspec

from openclaw_rl.shared.journal.sqlite import Connection
from openclaw_rl.shared.journal.turns import SPANS

_WAITING = """
SELECT versions, sampling, keeps FROM turns JOIN (
  SELECT turn, id AS place, 0 AS queued,
    hint IS NOT NULL OR (explicit AND EXISTS (SELECT 1 FROM feedback WHERE feedback.turn = samples.turn)) AS keeps
  FROM samples WHERE state = 'ready'
  UNION ALL
  SELECT turn, turn, 1, 0 FROM judge_queue WHERE turn NOT IN (SELECT turn FROM samples WHERE state = 'ready')
) ON turn = turns.id ORDER BY queued, place
"""


class _Origin(msgspec.Struct):
    """The part of a turn's sampling that says whether a version sampled it."""

    imported: bool = False


_ORIGIN = msgspec.json.Decoder(_Origin)


def backlog(connection: Connection) -> list[tuple[int, ...]]:
    """The versions of the tokens of each turn that waits for a step or for a judge, in the order of their steps. Those
    that no number of updates makes too old have none: imported ones, and those with a hint or a person's feedback.
    """
    found: list[tuple[int, ...]] = []
    for spans, sampling, keeps in connection.execute(_WAITING):
        ages: tuple[int, ...] = ()
        with suppress(msgspec.MsgspecError):  # a damaged turn is set aside where it is read
            if not keeps and not _ORIGIN.decode(sampling).imported:
                ages = tuple({span[0] for span in SPANS.decode(spans)})
        found.append(ages)
    return found


def waiting_count(connection: Connection) -> int:
    """The number of turns that wait for a judge."""
    return int(connection.value("SELECT count(*) FROM judge_queue"))
