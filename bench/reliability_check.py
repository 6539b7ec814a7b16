"""Check the data folder of a service against what its clients saw, knowing nothing of the service's code.

`bench.faults` and `bench.chaos` write a history, one JSON object a line, of what was acknowledged to clients:

    {"kind": "turn", "turn_id", "tokens", "after"}  an answer that the client received completely; where they are
                                                 known, its length and the turn that its request continued
    {"kind": "next_state", "turn_id"}            a later turn of the same session was acknowledged
    {"kind": "feedback", "turn_id", "feedback_id"}
    {"kind": "forgotten", "session_id", "erased": [bytes in hex, …]}
    {"kind": "served", "version", "state"}       the engine began to serve it, and its state in the journal ("": none)
    {"kind": "judged in a step", "turn_id"}      a sample was made of a turn while a step learned from it

Only SQLite, JSON and SHA-256 are used. Look at a copy of a folder that nothing has open: SQLite recovers what it opens.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

Event = Mapping[str, Any]

KINDS = ("acknowledged", "lost", "twice", "lineage", "files", "journal")
"""What clients were promised, samples, versions, their files, and SQLite's own checks."""
IN_STEP = "judged in a step"
LINE = """
line(n) AS (SELECT number FROM versions WHERE state = 'live'
            UNION SELECT parent FROM versions JOIN line ON number = n WHERE parent IS NOT NULL)
"""
"""The live version, and all that it descends from."""

RULES = {
    "lost": {
        "settled turns are neither judged, nor waiting, nor set aside": "SELECT count(*) FROM turns "
        "WHERE kind = 'main' AND status = 'complete' AND untrainable = '' AND id NOT IN (SELECT turn FROM judge_queue "
        "UNION SELECT turn FROM judgements UNION SELECT turn FROM quarantines) AND id IN "
        "(SELECT turn FROM next_states WHERE role = 'user' UNION SELECT turn FROM feedback)",
        "judged turns have no sample and are not set aside": "SELECT count(DISTINCT turn) FROM judgements WHERE turn "
        "NOT IN (SELECT turn FROM samples UNION SELECT turn FROM quarantines UNION SELECT turn FROM judge_queue)",
        "samples wait, and their turn is set aside": "SELECT count(*) FROM samples JOIN quarantines USING (turn) "
        "WHERE state = 'ready'",
        "samples count as learned from, and no version holds them": "SELECT count(*) FROM samples "
        "WHERE state = 'consumed' AND sample_id NOT IN (SELECT sample_id FROM version_samples)",
    },
    "twice": {
        "samples of a version do not count as learned from, or those of a rejected one do": "SELECT count(*) "
        "FROM samples JOIN version_samples USING (sample_id) JOIN versions ON number = version "
        "WHERE (samples.state = 'consumed') = (versions.state = 'rejected')",
        "samples are in two versions": "SELECT count(*) FROM (SELECT 1 FROM version_samples GROUP BY sample_id "
        "HAVING count(*) > 1)",
        "turns have two samples that wait": "SELECT count(*) FROM (SELECT 1 FROM samples WHERE state = 'ready' "
        "GROUP BY turn HAVING count(*) > 1)",
        "turns count twice in the live line, and not as a correction": f"WITH RECURSIVE {LINE} SELECT count(*) FROM "
        "samples AS one JOIN samples AS two ON one.turn = two.turn AND one.id < two.id WHERE one.sample_id IN "
        "(SELECT sample_id FROM version_samples WHERE version IN line) AND two.sample_id IN (SELECT sample_id FROM "
        "version_samples WHERE version IN line) AND (NOT two.explicit OR (one.reward IS two.reward AND one.hint IS "
        "two.hint)) AND NOT EXISTS (SELECT 1 FROM samples AS middle JOIN version_samples USING (sample_id) WHERE "
        "version IN line AND middle.turn = one.turn AND middle.id > one.id AND middle.id < two.id)",
        "feedback is there twice": "SELECT count(*) FROM (SELECT 1 FROM feedback GROUP BY feedback_id "
        "HAVING count(*) > 1)",
    },
    "lineage": {
        "versions are live at once, or none is": "SELECT CASE WHEN count(*) = 0 THEN 0 ELSE "
        "abs(sum(state = 'live') - 1) END FROM versions",
        "versions come of none that is older": "SELECT count(*) FROM versions LEFT JOIN versions AS parent "
        "ON versions.parent = parent.number WHERE versions.parent IS NOT NULL "
        "AND coalesce(parent.number, versions.number) >= versions.number",
        "steps are not their parent's plus one": "SELECT count(*) FROM versions JOIN versions AS parent "
        "ON versions.parent = parent.number WHERE versions.state IN ('live', 'retired', 'candidate') "
        "AND versions.method != 'resumed' AND json_extract(versions.metrics, '$.step') "
        "!= coalesce(json_extract(parent.metrics, '$.step'), 0) + 1",
    },
}
"""Queries that count what must not be, by what it would mean."""


def read_history(path: Path) -> list[dict[str, Any]]:
    """The events of a history; a last line that was cut is left out."""
    lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def check(data: Path, history: Iterable[Event] = ()) -> dict[str, list[str]]:
    """Faults of a data folder by `KINDS`, each a list of findings."""
    found: dict[str, list[str]] = {kind: [] for kind in KINDS}
    with tempfile.TemporaryDirectory(dir=data.parent) as scratch:
        events = list(history)
        found["acknowledged"] += _not_erased(data, events)
        for path in data.glob("journal.db*"):
            shutil.copyfile(path, Path(scratch) / path.name)
        if not (Path(scratch) / "journal.db").exists():
            return found
        connection = sqlite3.connect(Path(scratch) / "journal.db")
        try:
            _tables(connection, found)
            found["acknowledged"] += _not_recorded(connection, events)
            found["twice"] += [
                f"turn {one['turn_id']} was judged in its step" for one in events if one["kind"] == IN_STEP
            ]
            for event in events:
                if event["kind"] == "served" and event["version"] and event["state"] in ("", "rejected"):
                    found["lineage"].append(f"version {event['version']} served, and was {event['state'] or 'unknown'}")
            found["files"] += _files(connection, data)
        except (sqlite3.Error, json.JSONDecodeError) as error:
            found["journal"].append(str(error))
        finally:
            connection.close()
    return found


def figures(data: Path) -> dict[str, int]:
    """Counts of a journal: versions that were learned, turns that something came after, and those of them that were
    set aside as too old and never learned from.
    """
    with closing(sqlite3.connect(f"file:{data / 'journal.db'}?mode=ro", uri=True)) as connection:
        tables = {
            "versions": "versions WHERE parent IS NOT NULL",
            "settled": "(SELECT turn FROM next_states UNION SELECT turn FROM feedback)",
            "dropped": "quarantines WHERE reason LIKE 'stale%' AND turn NOT IN "
            "(SELECT turn FROM samples WHERE state IN ('ready', 'consumed'))",
        }
        return {name: connection.execute(f"SELECT count(*) FROM {rows}").fetchone()[0] for name, rows in tables.items()}


def content_of(data: Path, session_id: str) -> list[str]:
    """The stored bytes that belong to a session alone, in hex, long enough to be found by chance nowhere else."""
    with closing(sqlite3.connect(f"file:{data / 'journal.db'}?mode=ro", uri=True)) as connection:
        rows = connection.execute(
            "SELECT body FROM blobs JOIN turn_blobs ON blob = blobs.id JOIN turns ON turns.id = turn JOIN sessions "
            "ON sessions.id = session WHERE length(body) >= 24 GROUP BY blobs.id "
            "HAVING min(session_id) = ?1 AND max(session_id) = ?1",
            (session_id,),
        )
        return [bytes(body).hex() for (body,) in rows]


def _tables(connection: sqlite3.Connection, found: dict[str, list[str]]) -> None:
    found["journal"] += [row[0] for row in connection.execute("PRAGMA integrity_check") if row[0] != "ok"]
    found["journal"] += [f"a row of {row[0]} refers to none" for row in connection.execute("PRAGMA foreign_key_check")]
    for kind, rules in RULES.items():
        counts = [(connection.execute(query).fetchone()[0], text) for text, query in rules.items()]
        found[kind] += [f"{count} {text}" for count, text in counts if count]


def _not_recorded(connection: sqlite3.Connection, events: Iterable[Event]) -> list[str]:
    """Acknowledged turns, next states and feedback that are not in the journal, or not as they were answered."""
    queries = {
        "turn": "SELECT response_tokens, parent_turn_id FROM turns JOIN contents ON turn = id "
        "WHERE turn_id = ? AND status = 'complete'",
        "next_state": "SELECT 1 FROM next_states JOIN turns ON turns.id = turn WHERE turn_id = ?",
        "feedback": "SELECT 1 FROM feedback JOIN turns ON turns.id = turn WHERE turn_id = ? AND feedback_id = ?",
    }
    missing, events = [], list(events)
    forgotten = {event["session_id"] for event in events if event["kind"] in ("forget", "forgotten")}
    for event in events:
        if event["kind"] not in queries or event.get("session_id") in forgotten:
            continue
        values = [event[name] for name in ("turn_id", "feedback_id") if name in event]
        row = connection.execute(queries[event["kind"]], values).fetchone()
        if row is None:
            missing.append(f"acknowledged {event['kind']} {' '.join(values)} is not in the journal")
        elif event["kind"] == "turn":
            tokens, parent = event.get("tokens", row[0]), event.get("after") or row[1]
            if row != (tokens, parent):
                missing.append(
                    f"turn {values[0]} has {row[0]} tokens of {tokens}, and continues {row[1]}, not {parent}"
                )
    return missing


def _not_erased(data: Path, events: Iterable[Event]) -> list[str]:
    """Files that still hold what was acknowledged as forgotten."""
    wanted = [bytes.fromhex(one) for event in events if event["kind"] == "forgotten" for one in event["erased"]]
    files = [path for path in data.rglob("*") if path.is_file()] if wanted else []
    return [
        f"{path.name} still holds forgotten text" for path in files if any(one in path.read_bytes() for one in wanted)
    ]


def _files(connection: sqlite3.Connection, data: Path) -> list[str]:
    """Differences of files of versions from the journal, and from the digests written next to them. Those of the live
    version, of its parent and of a candidate must be there.
    """
    query = (
        "SELECT number, parent, checkpoint, state, json_extract(metrics, '$.step') FROM versions "
        "WHERE state != 'rejected' ORDER BY number DESC"
    )
    rows = connection.execute(query).fetchall()
    live = next((row for row in rows if row[3] == "live"), None)
    if live is None:
        return []
    # The parent of a version that someone went back to may have been removed before.
    wanted = {live[0], live[1]} if live == rows[0] else {live[0]}
    wanted |= {row[0] for row in rows if row[3] == "candidate"}
    found = []
    for number, parent, checkpoint, _, step in rows:
        folder = data / "checkpoints" / Path(checkpoint).name
        if not checkpoint:
            continue
        if not (folder / "meta.json").is_file():
            found += [f"version {number} has no files"] * (number in wanted)
            continue
        meta = json.loads((folder / "meta.json").read_text())
        ids = [row[0] for row in connection.execute(
            "SELECT sample_id FROM version_samples WHERE version = ? ORDER BY position", (number,)
        )]  # fmt: skip
        if (meta.get("parent"), meta.get("sample_ids")) != (parent, ids) or step not in (None, meta.get("step")):
            found.append(f"the files of version {number} name another parent, other samples or another step")
        for name, (_, digest) in meta.get("files", {"no digests": (0, "")}).items():
            path = folder / name
            if not path.is_file() and number not in wanted:  # it is being removed
                continue
            if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != digest:
                found.append(f"{name} of version {number} is not what was written")
    return found
