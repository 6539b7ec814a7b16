"""Groups of attempts at one task, as the learner compares them: which wait for a step, and the rewards of each."""

from __future__ import annotations

from contextlib import suppress
from itertools import groupby

from openclaw_rl.shared.errors import DamagedRecord
from openclaw_rl.shared.journal.attempts import is_step
from openclaw_rl.shared.journal.encoding import unpack_record
from openclaw_rl.shared.journal.sqlite import Connection
from openclaw_rl.shared.journal.views import GroupAttempt, GroupStep, WaitingGroup
from openclaw_rl.shared.records import Judgement, Outcome

IN_GROUP = """EXISTS (SELECT 1 FROM turns AS member JOIN episodes USING (session, episode)
WHERE member.id = samples.turn AND task_group != '')"""
"""Of a row of `samples`: its turn belongs to a group."""

_HAS_OUTCOME = """EXISTS (SELECT 1 FROM outcomes
WHERE outcomes.session = episodes.session AND outcomes.episode = episodes.episode)"""

# Indexed by group or by session: an attempt has few turns, and the journal may have millions.
_WAITING = f"""
WITH waiting (name, ready, newest) AS (
  SELECT task_group, count(*), max(samples.id) FROM samples JOIN turns ON turns.id = samples.turn
  JOIN episodes USING (session, episode) WHERE samples.state = 'ready' AND task_group != '' GROUP BY task_group
)
SELECT name, ready, max(attempts), sum({_HAS_OUTCOME}), sum(ended IS NULL AND NOT {_HAS_OUTCOME}),
  sum(EXISTS (SELECT 1 FROM turns CROSS JOIN judge_queue ON judge_queue.turn = turns.id
      WHERE turns.session = episodes.session AND kind = 'main' AND turns.episode = episodes.episode)),
  max(coalesce(ended, (SELECT last_seen FROM sessions WHERE sessions.id = episodes.session)))
FROM waiting CROSS JOIN episodes ON task_group = name AND task_group != '' GROUP BY name ORDER BY newest
"""

_STEPS = f"""
SELECT session_id, episodes.episode, turn_id,
  (SELECT body FROM judgements WHERE turn = turns.id ORDER BY id DESC LIMIT 1),
  (SELECT body FROM outcomes WHERE outcomes.session = episodes.session AND outcomes.episode = episodes.episode
   ORDER BY outcomes.id DESC LIMIT 1)
FROM episodes JOIN sessions ON sessions.id = episodes.session LEFT JOIN turns
  ON turns.session = episodes.session AND turns.episode = episodes.episode AND {is_step("turns")}
WHERE task_group = ? AND task_group != ''
ORDER BY started, episodes.session, episodes.episode, arrived, turns.id
"""


def waiting_groups(connection: Connection) -> list[WaitingGroup]:
    """The groups that samples wait in, in the order of their newest sample."""
    if connection.value("SELECT 1 FROM episodes WHERE task_group != '' LIMIT 1") is None:
        return []
    return [WaitingGroup(*row) for row in connection.execute(_WAITING)]


def group_attempts(connection: Connection, group: str) -> list[GroupAttempt]:
    """All attempts of a group with the rewards of their steps, in the order in which they began."""
    rows = connection.execute(_STEPS, (group,)).fetchall()
    found = []
    for (session_id, episode), steps in groupby(rows, key=lambda row: (row[0], row[1])):
        turns = list(steps)
        rewarded = [GroupStep(turn_id, _reward(judged)) for *_, turn_id, judged, _ in turns if turn_id is not None]
        found.append(GroupAttempt(session_id, episode, outcome_of(turns[0][-1]), rewarded))
    return found


def _reward(body: bytes | None) -> float | None:
    """The reward of a judgement by an outcome."""
    with suppress(DamagedRecord):
        judged = None if body is None else unpack_record(body, Judgement)
        return judged.score if judged is not None and judged.signal == "outcome" else None
    return None


def outcome_of(body: bytes | None) -> float | None:
    """The reward of a stored outcome; `None` without a verdict, and where it is damaged."""
    with suppress(DamagedRecord):
        return None if body is None else unpack_record(body, Outcome).reward
    return None
