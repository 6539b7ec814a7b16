"""How many judgements and votes there ever were, and how many failed: counted as they are written, so that nobody has
to look for them. Forgetting a session takes nothing off.
"""

from __future__ import annotations

import json
import sqlite3

from openclaw_rl.shared.records import Judgement

_KEY = "judge tally"


def tally(connection: sqlite3.Connection, judgement: Judgement) -> None:
    """Count a judgement, within the transaction that stores it."""
    judgements, without_score, votes, failed = tallied(connection)
    counts = (
        judgements + 1,
        without_score + (judgement.score is None),
        votes + len(judgement.votes),
        failed + sum(bool(vote.failure) for vote in judgement.votes),
    )
    connection.execute("INSERT OR REPLACE INTO controls (key, value) VALUES (?,?)", (_KEY, json.dumps(counts)))


def tallied(connection: sqlite3.Connection) -> tuple[int, int, int, int]:
    """Judgements, those without a score, votes, and votes that failed."""
    found = connection.execute("SELECT value FROM controls WHERE key = ?", (_KEY,)).fetchone()
    judgements, without_score, votes, failed = json.loads(found[0]) if found else (0, 0, 0, 0)
    return judgements, without_score, votes, failed
