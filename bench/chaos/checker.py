"""Judge a data folder by the history of its clients: `python bench/chaos/checker.py DATA HISTORY`.

Reads SQLite and files, and imports nothing of the project, so that it shares none of its errors. The history has a JSON
object a line, of what was acknowledged: `{"turn", "after"}`, the turn that its request continued or null, and
`{"feedback", "turn"}`.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

_LOST = """
SELECT count(*) FROM turns WHERE kind = 'main' AND status = 'complete' AND untrainable = ''
AND (id IN (SELECT turn FROM next_states WHERE role = 'user') OR id IN (SELECT turn FROM feedback))
AND id NOT IN (SELECT turn FROM judge_queue) AND id NOT IN (SELECT turn FROM samples)
AND id NOT IN (SELECT turn FROM quarantines)
"""
_DROPPED = """
SELECT count(*) FROM quarantines WHERE reason LIKE 'stale%'
AND turn NOT IN (SELECT turn FROM samples WHERE state IN ('ready', 'consumed'))
"""
_SETTLED = "SELECT count(DISTINCT turn) FROM (SELECT turn FROM next_states UNION SELECT turn FROM feedback)"
_LINE = """
WITH RECURSIVE line(number) AS (SELECT number FROM versions WHERE state = 'live'
UNION SELECT parent FROM versions JOIN line USING (number) WHERE parent IS NOT NULL)
"""
_TWICE = f"""{_LINE} SELECT count(*) FROM (SELECT 1 FROM samples JOIN version_samples USING (sample_id)
WHERE version IN line GROUP BY turn, reward, hint HAVING count(*) > 1)
"""
_CONSUMED = """
SELECT count(*) FROM samples LEFT JOIN version_samples USING (sample_id) LEFT JOIN versions ON number = version
WHERE (samples.state = 'consumed') != (number IS NOT NULL AND versions.state != 'rejected')
"""


def check(data: Path, history: Path) -> dict[str, Any]:
    """The figures; each count is 0 where every promise was kept. `faults` says what was found, in words."""
    said = [json.loads(line) for line in history.read_text("utf-8").splitlines()]
    with closing(sqlite3.connect(f"file:{data / 'journal.db'}?mode=ro", uri=True)) as journal:
        lost = list(_lost(journal, said))
        lineage = list(_lineage(journal))
        consumed = _count(journal, _CONSUMED)
        twice = _count(journal, _TWICE)
        samples = _count(journal, _LOST)
        settled = _count(journal, _SETTLED)
        faults = [row[0] for row in journal.execute("PRAGMA integrity_check") if row[0] != "ok"]
        faults += [f"foreign key of {row[0]}" for row in journal.execute("PRAGMA foreign_key_check")]
        return {
            "turns": sum("after" in one for one in said),
            "lost_acknowledged": len(lost),
            "consumed_twice": twice,
            "lost_samples": samples + consumed,
            "dropped_share": round(_count(journal, _DROPPED) / max(1, settled), 4),
            "lineage_mismatch": len(lineage),
            "journal": "; ".join(faults) or "ok",
            "settled": settled,
            "versions": _count(journal, "SELECT count(*) FROM versions WHERE parent IS NOT NULL"),
            "faults": [*lost, *lineage],
        }


def _count(journal: sqlite3.Connection, query: str) -> int:
    return int(journal.execute(query).fetchone()[0])


def _lost(journal: sqlite3.Connection, said: list[dict[str, Any]]) -> list[str]:
    """Acknowledged turns, their places behind the turn before, and feedback that the journal does not have."""
    query = "SELECT turn_id, parent_turn_id, status, next_states.turn IS NOT NULL FROM turns LEFT JOIN next_states "
    turns = {row[0]: row[1:] for row in journal.execute(query + "ON next_states.turn = turns.id")}
    words = set(journal.execute("SELECT feedback_id, turn_id FROM feedback JOIN turns ON turns.id = turn"))
    lost = []
    for one in said:
        parent, status, _ = turns.get(one["turn"], (None, "missing", False))
        if status != "complete":
            lost.append(f"{one['turn']} is {status}")
        if "feedback" in one and (one["feedback"], one["turn"]) not in words:
            lost.append(f"{one['feedback']} on {one['turn']} is missing")
        if before := one.get("after"):
            if parent != before:
                lost.append(f"{one['turn']} continues {parent}, not {before}")
            if not turns.get(before, (None, "", False))[2]:
                lost.append(f"{before} has no next state")
    return lost


def _lineage(journal: sqlite3.Connection) -> list[str]:
    """Versions whose parent, samples, step or files are not what the journal and the checkpoint say."""
    rows = journal.execute("SELECT number, parent, state, checkpoint FROM versions ORDER BY number").fetchall()
    versions = {number: (parent, state, checkpoint) for number, parent, state, checkpoint in rows}
    wrong = []
    live = [number for number, (_, state, _) in versions.items() if state == "live"]
    if len(live) != 1:
        wrong.append(f"{len(live)} versions are live")
    needed = {one for number in live for one in (number, versions[number][0]) if one}
    for number, (parent, state, checkpoint) in versions.items():
        folder = Path(checkpoint)
        if parent is None:
            continue
        if parent >= number or parent not in versions:
            wrong.append(f"version {number} has the parent {parent}")
            continue
        meta = _meta(checkpoint)
        if not meta:
            if number in needed:
                wrong.append(f"version {number} is {state} or the parent of it, and {folder} is gone")
            continue
        taken = journal.execute("SELECT sample_id FROM version_samples WHERE version = ?", (number,))
        if meta["parent"] != parent or set(meta["sample_ids"]) != {row[0] for row in taken}:
            wrong.append(f"version {number} has another parent or other samples in {folder}")
        before = _meta(versions[parent][2])
        if (before or versions[parent][0] is None) and meta["step"] != before.get("step", 0) + 1:
            wrong.append(f"version {number} has step {meta['step']} after {before.get('step', 0)}")
        for name, (size, digest) in meta["files"].items():
            content = (folder / name).read_bytes() if (folder / name).is_file() else b""
            if (len(content), hashlib.sha256(content).hexdigest()) != (size, digest):
                wrong.append(f"{folder / name} is not what was written")
    return wrong


def _meta(checkpoint: str) -> dict[str, Any]:
    """Empty for the base, which has none, and for a version whose files were pruned."""
    path = Path(checkpoint) / "meta.json"
    return dict(json.loads(path.read_text("utf-8"))) if checkpoint and path.is_file() else {}


if __name__ == "__main__":
    print(json.dumps(check(Path(sys.argv[1]), Path(sys.argv[2])), indent=2))
