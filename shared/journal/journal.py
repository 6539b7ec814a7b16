"""The journal as one object: every method of its parts, and what an operator asks of it."""

from __future__ import annotations

import json
import math
import os
from array import array
from collections.abc import Mapping
from typing import Any

import msgspec

from openclaw_rl.shared.journal import encoding
from openclaw_rl.shared.journal.transfer import Offline
from openclaw_rl.shared.journal.views import ProcessRow
from openclaw_rl.shared.objective.importance_ratio import no_ratio
from openclaw_rl.shared.records import Audit, Judgement, Turn, now

_SAMPLE_FIELDS = ("sample_id", "state", "reward", "hint", "weight", "time", "version", "version_state")

_SAMPLES = """
SELECT samples.sample_id, samples.state, reward, hint, weight, samples.time, version, versions.state
FROM samples LEFT JOIN version_samples ON version_samples.sample_id = samples.sample_id
LEFT JOIN versions ON number = version WHERE turn = ? ORDER BY samples.id
"""


class Journal(Offline):
    """What the loops share. Every write is durable when its method returns; safe from several threads and several
    processes.
    """

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Journal:
        """Open or create the journal at a path, its schema brought up to date. Raises JournalError; ConfigError for
        PostgreSQL.
        """
        return cls(path)

    def set_control(self, key: str, value: str) -> None:
        """Set a switch that every process sees, such as `train` = `paused` or `running`."""
        with self._writing() as connection:
            connection.execute("INSERT OR REPLACE INTO controls (key, value) VALUES (?,?)", (key, value))

    def get_control(self, key: str, default: str = "") -> str:
        """The value of a switch."""
        with self._reading() as connection:
            found = connection.execute("SELECT value FROM controls WHERE key = ?", (key,)).fetchone()
            return str(found[0]) if found else default

    def heartbeat(self, process: str, pid: int, status: Mapping[str, Any]) -> None:
        """Say that a process lives, and how it does."""
        with self._writing() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO processes (name, pid, time, status) VALUES (?,?,?,?)",
                (process, pid, now(), json.dumps(dict(status))),
            )

    def processes(self) -> dict[str, ProcessRow]:
        """The last heartbeat of every process, by name."""
        with self._reading() as connection:
            rows = connection.execute("SELECT name, pid, time, status FROM processes ORDER BY name").fetchall()
            return {name: ProcessRow(name, pid, time, json.loads(status)) for name, pid, time, status in rows}

    def explain(self, turn_id: str) -> dict[str, Any] | None:
        """Everything known of a turn, ready for JSON (bytes as hexadecimal digits); `None` if there is no such turn.

        `no_ratio` says why terms with an importance ratio cannot take it ("" where they can); `extends_parent` whether
        its prompt begins with the parent's prompt and sampled answer, id for id (`None` without a parent).
        """
        with self._reading() as connection:
            turn = self.turn(turn_id)
            if turn is None:
                return None
            (row,) = connection.execute("SELECT id FROM turns WHERE turn_id = ?", (turn_id,)).fetchone()
            quarantine = connection.execute("SELECT reason, time FROM quarantines WHERE turn = ?", (row,)).fetchone()
            waiting = connection.execute("SELECT 1 FROM judge_queue WHERE turn = ?", (row,)).fetchone()
            rows = connection.execute(_SAMPLES, (row,))
            samples = [dict(zip(_SAMPLE_FIELDS, values, strict=True)) for values in rows]
            judgements = self._bodies(Judgement, "SELECT body FROM judgements WHERE turn = ? ORDER BY id", turn_id)
            return {
                "turn": _plain(turn),
                "extends_parent": self._extends_parent(turn),
                "next_state": _plain(self.next_state(turn_id)),
                "feedback": _plain(self.feedback_for(turn_id)),
                "outcome": _plain(self.outcome(turn.session_id)),
                "waiting": waiting is not None,
                "judgements": _plain(judgements),
                "samples": samples,
                "audit": _told(self.audit(turn_id)),
                "no_ratio": no_ratio(turn.sampling),
                "quarantine": {"reason": quarantine[0], "time": quarantine[1]} if quarantine else None,
                "versions": [sample["version"] for sample in samples if sample["state"] == "consumed"],
            }

    def _extends_parent(self, turn: Turn) -> bool | None:
        parent = self.turn(turn.parent_turn_id) if turn.parent_turn_id is not None else None
        if parent is None:
            return None
        before = encoding.token_ids(parent.prompt_ids) + encoding.token_ids(parent.response_ids)
        return len(parent.response_ids) > 0 and encoding.token_ids(turn.prompt_ids)[: len(before)] == before

    def status(self) -> dict[str, Any]:
        """Counts of everything, ready for JSON.

        `classes` also counts what was forgotten or never recorded; `interactions` are main turns that a person
        answered; `last_change` tells the live version, its time (Unix seconds) and the interactions that it had.
        """
        with self._reading() as connection:

            def groups(query: str) -> dict[str, int]:
                return {str(name): int(count) for name, count in connection.execute(query)}

            def number(query: str) -> int:
                return int(connection.execute(query).fetchone()[0] or 0)

            live = connection.execute("SELECT number, time FROM versions WHERE state = 'live'").fetchone()
            since = connection.execute(
                "SELECT count(*) FROM next_states JOIN turns ON turns.id = turn "
                "WHERE role = 'user' AND kind = 'main' AND arrived > ?",
                (live[1] if live else 0.0,),
            ).fetchone()
            turns = {"total": 0, "main": 0, "side": 0, "complete": 0, "aborted": 0, "error": 0}
            for kind, state, count in connection.execute(
                "SELECT kind, status, count(*) FROM turns GROUP BY kind, status"
            ):
                for name in ("total", kind, state):
                    turns[name] += count
            samples = groups("SELECT state, count(*) FROM samples GROUP BY state")
            return {
                "turns": turns,
                "classes": [
                    {"kind": kind, "reason": reason, "count": count}
                    for kind, reason, count in connection.execute(
                        "SELECT kind, reason, count FROM traffic ORDER BY count DESC, kind, reason"
                    )
                ],
                "sessions": number("SELECT count(*) FROM sessions"),
                "open_episodes": number("SELECT count(*) FROM episodes WHERE ended IS NULL"),
                "next_states": groups("SELECT role, count(*) FROM next_states GROUP BY role"),
                "interactions": number(
                    "SELECT count(*) FROM next_states JOIN turns ON turns.id = turn "
                    "WHERE role = 'user' AND kind = 'main'"
                ),
                "feedback": number("SELECT count(*) FROM feedback"),
                "judgements": number("SELECT count(*) FROM judgements"),
                "unjudged": number("SELECT count(*) FROM judge_queue"),
                "ready": samples.get("ready", 0),
                "consumed": samples.get("consumed", 0),
                "quarantined": groups("SELECT reason, count(*) FROM quarantines GROUP BY reason"),
                "versions": groups("SELECT state, count(*) FROM versions GROUP BY state"),
                "live": live[0] if live else None,
                "last_change": {"version": live[0], "time": live[1], "interactions": since[0]} if live else None,
            }


def _told(audit: Audit | None) -> dict[str, Any] | None:
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
