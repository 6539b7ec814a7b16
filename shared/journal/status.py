"""Switches, heartbeats, and what an operator asks: everything known of a turn, counts of everything."""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Mapping
from typing import Any

import msgspec

from openclaw_rl.shared.journal import attempts, audits, groups, signals
from openclaw_rl.shared.journal.accounting import waiting_count
from openclaw_rl.shared.journal.encoding import token_ids
from openclaw_rl.shared.journal.exclusion import is_excluded
from openclaw_rl.shared.journal.sessions import expected_episode
from openclaw_rl.shared.journal.sqlite import Connection
from openclaw_rl.shared.journal.tallies import tally, total
from openclaw_rl.shared.journal.turns import find_turn, turn_row
from openclaw_rl.shared.journal.views import ProcessRow
from openclaw_rl.shared.objective.importance_ratio import no_ratio
from openclaw_rl.shared.records import Audit, Turn, now

PAUSE_REASON = "pause reason"
"""The control that says why training is paused, "" where a person paused it."""

_SAMPLE_FIELDS = ("sample_id", "state", "reward", "hint", "time", "version", "version_state", "weight", "advantage")

_SAMPLES = """
SELECT samples.sample_id, samples.state, reward, hint, samples.time, version, versions.state, weight,
  advantage
FROM samples LEFT JOIN version_samples ON version_samples.sample_id = samples.sample_id
LEFT JOIN versions ON number = version WHERE turn = ? ORDER BY samples.id
"""


def set_control(connection: Connection, key: str, value: str) -> None:
    """Set a switch that every process sees, such as `train` = `paused` or `running`."""
    connection.execute("INSERT OR REPLACE INTO controls (key, value) VALUES (?,?)", (key, value))


def get_control(connection: Connection, key: str, default: str = "") -> str:
    """The value of a switch."""
    value = connection.value("SELECT value FROM controls WHERE key = ?", key)
    return default if value is None else str(value)


def heartbeat(connection: Connection, process: str, pid: int, status: Mapping[str, Any]) -> None:
    """Say that a process lives, and how it does."""
    connection.execute(
        "INSERT OR REPLACE INTO processes (name, pid, time, status) VALUES (?,?,?,?)",
        (process, pid, now(), json.dumps(dict(status))),
    )


def processes(connection: Connection) -> dict[str, ProcessRow]:
    """The last heartbeat of every process, by name."""
    rows = connection.execute("SELECT name, pid, time, status FROM processes ORDER BY name").fetchall()
    return {name: ProcessRow(name, pid, time, json.loads(status)) for name, pid, time, status in rows}


def explain(connection: Connection, turn_id: str, *, tokens: bool = True) -> dict[str, Any] | None:
    """Everything known of a turn, ready for JSON (bytes as hexadecimal digits); `None` if there is no such turn.
    Without `tokens` the ids and logprobs are left out, which are most of it.

    `attempt` is the place of a step in an attempt of an environment, with all attempts of its group as `members`;
    `awaits_outcome`: the outcome of its episode is still to come, and it can be judged by that.
    `no_ratio` says why terms with an importance ratio cannot take it ("" where they can); `extends_parent` whether
    its prompt begins with the parent's prompt and sampled answer, id for id (`None` without a parent).
    """
    turn = find_turn(connection, turn_id)
    if turn is None:
        return None
    row = turn_row(connection, turn_id)
    quarantine = connection.execute("SELECT reason, time FROM quarantines WHERE turn = ?", (row,)).fetchone()
    samples = [dict(zip(_SAMPLE_FIELDS, values, strict=True)) for values in connection.execute(_SAMPLES, (row,))]
    return {
        "turn": _turn(turn, tokens=tokens),
        "excluded": is_excluded(connection, row),
        "extends_parent": _extends_parent(connection, turn),
        "next_state": _plain(signals.next_state(connection, turn_id)),
        "feedback": _plain(signals.feedback_for(connection, turn_id)),
        "outcome": _plain(signals.outcome(connection, turn.session_id, turn.episode)),
        "attempt": _attempt(connection, turn_id),
        "awaits_outcome": _awaits_outcome(connection, turn),
        "waiting": connection.value("SELECT 1 FROM judge_queue WHERE turn = ?", row) is not None,
        "judgements": _plain(signals.judgements(connection, turn_id)[::-1]),
        "samples": samples,
        "audit": _summary(audits.audit(connection, turn_id)),
        "no_ratio": no_ratio(turn.sampling),
        "quarantine": {"reason": quarantine[0], "time": quarantine[1]} if quarantine else None,
        "versions": [sample["version"] for sample in samples if sample["state"] == "consumed"],
    }


def status(connection: Connection) -> dict[str, Any]:
    """Counts of everything, ready for JSON; costs the same however long the journal is.

    `groups` are those of attempts with samples that wait for a step; `classes` also counts what was forgotten or never
    recorded; `interactions` are main turns that a person answered; `last_change` gives the live version, its time (Unix
    seconds) and the interactions since it went live.
    """

    turns = {"total": 0, "main": 0, "side": 0, "complete": 0, "aborted": 0, "error": 0}
    for key, count in tally(connection, "turns").items():
        for name in ("total", *key.split()):
            turns[name] += count
    live = connection.execute("SELECT number, time FROM versions WHERE state = 'live'").fetchone()
    interactions = tally(connection, "interactions")
    classes = connection.execute("SELECT kind, reason, count FROM traffic ORDER BY count DESC, kind, reason")
    waiting = groups.waiting_groups(connection)
    samples = tally(connection, "samples")
    return {
        "turns": turns,
        "classes": [{"kind": kind, "reason": reason, "count": count} for kind, reason, count in classes],
        "sessions": total(connection, "sessions"),
        "open_episodes": int(connection.value("SELECT count(*) FROM episodes WHERE ended IS NULL")),
        "next_states": tally(connection, "next states"),
        "interactions": sum(interactions.values()),
        "feedback": total(connection, "feedback"),
        "judgements": total(connection, "judgements"),
        "unjudged": waiting_count(connection),
        "ready": samples.get("ready", 0),
        "groups": {"waiting": len(waiting), "ready": sum(group.ready for group in waiting)},
        "consumed": samples.get("consumed", 0),
        "known": samples.get("known", 0),
        "quarantined": tally(connection, "quarantined"),
        "versions": tally(connection, "versions"),
        "live": live[0] if live else None,
        "last_change": {"version": live[0], "time": live[1], "interactions": interactions.get("since", 0)}
        if live
        else None,
    }


def _turn(turn: Turn, *, tokens: bool) -> dict[str, Any]:
    left_out = () if tokens else ("prompt_ids", "response_ids", "logprobs")
    count = len(turn.logprobs)
    return {
        **{name: _plain(getattr(turn, name)) for name in turn.__struct_fields__ if name not in left_out},
        "prompt_tokens": len(turn.prompt_ids),
        "response_tokens": len(turn.response_ids),
        "mean_logprob": math.fsum(turn.logprobs) / count if count else None,
    }


def _attempt(connection: Connection, turn_id: str) -> dict[str, Any] | None:
    found = attempts.attempt_of(connection, turn_id)
    members = groups.group_attempts(connection, found.group) if found is not None and found.group else []
    return None if found is None else {**_plain(found), "members": _plain(members)}


def _awaits_outcome(connection: Connection, turn: Turn) -> bool:
    if turn.kind != "main" or turn.status != "complete" or turn.untrainable:
        return False
    session = connection.value("SELECT id FROM sessions WHERE session_id = ?", turn.session_id)
    return expected_episode(connection, session) == turn.episode


def _extends_parent(connection: Connection, turn: Turn) -> bool | None:
    parent = find_turn(connection, turn.parent_turn_id) if turn.parent_turn_id is not None else None
    if parent is None:
        return None
    before = token_ids(parent.prompt_ids) + token_ids(parent.response_ids)
    return len(parent.response_ids) > 0 and token_ids(turn.prompt_ids)[: len(before)] == before


def _summary(audit: Audit | None) -> dict[str, Any] | None:
    """An audit without its differences token by token."""
    if audit is None:
        return None
    count = len(audit.differences)
    return {
        "verdict": audit.verdict,
        "version": audit.version,
        "reason": audit.reason,
        "time": audit.time,
        "tokens": count,
        "mean": math.fsum(audit.differences) / count if count else None,
        "largest": max(audit.differences, default=None),
    }


def _plain(value: Any) -> Any:
    """Records, arrays and bytes as what JSON has."""
    if isinstance(value, msgspec.Struct):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, array):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.hex() if isinstance(value, bytes) else value
