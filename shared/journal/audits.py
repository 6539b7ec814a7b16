"""Audits: which turns may be scored again, what came of it, and the figures over the latest of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress

from openclaw_rl.shared.errors import DamagedRecord
from openclaw_rl.shared.journal.encoding import naming_damage, pack_floats, unpack_floats
from openclaw_rl.shared.journal.signals import quarantine_turn
from openclaw_rl.shared.journal.sqlite import Connection
from openclaw_rl.shared.journal.tallies import tally
from openclaw_rl.shared.journal.turns import SPANS, naming_row, turn_row
from openclaw_rl.shared.journal.views import AuditFigures
from openclaw_rl.shared.records import Audit

RECENT = 64
"""Compared turns that the published figures are over."""

_COMPARED = "verdict IN ('aligned', 'misaligned')"


def unaudited(connection: Connection, limit: int) -> list[tuple[str, int]]:
    """Turns whose audit is undecided, oldest first, each with the newest version in it: complete main turns that may
    be trained on.
    """
    rows = connection.execute(
        "SELECT turn, turn_id, versions FROM audit_queue JOIN turns ON turns.id = turn ORDER BY turn LIMIT ?",
        (limit,),
    )
    found = []
    for turn, turn_id, spans in rows:
        with naming_row(turn), naming_damage("the versions of its tokens"):
            found.append((turn_id, max((span[0] for span in SPANS.decode(spans)), default=0)))
    return found


def pass_unaudited(connection: Connection, turn_ids: Sequence[str]) -> None:
    """These turns are not to be audited."""
    connection.executemany(
        "DELETE FROM audit_queue WHERE turn = (SELECT id FROM turns WHERE turn_id = ?)",
        [(turn_id,) for turn_id in turn_ids],
    )


def add_audit(connection: Connection, audit: Audit) -> None:
    """Store an audit; a misaligned turn goes into quarantine with it, and no sample of that turn becomes ready any
    more.
    """
    turn = turn_row(connection, audit.turn_id)
    connection.execute(
        "INSERT OR REPLACE INTO audits (turn, version, verdict, reason, differences, time) VALUES (?,?,?,?,?,?)",
        (turn, audit.version, audit.verdict, audit.reason, pack_floats(audit.differences), audit.time),
    )
    connection.execute("DELETE FROM audit_queue WHERE turn = ?", (turn,))
    if audit.verdict == "misaligned":
        reason = f"misaligned: its logprobs are not those that version {audit.version} gives its tokens"
        quarantine_turn(connection, turn, reason, audit.time)


def audit(connection: Connection, turn_id: str) -> Audit | None:
    """The audit of a turn; `None` if there was none."""
    found = connection.execute(
        "SELECT version, verdict, reason, differences, audits.time FROM audits "
        "JOIN turns ON turns.id = turn WHERE turn_id = ?",
        (turn_id,),
    ).fetchone()
    if found is None:
        return None
    version, verdict, reason, differences, time = found
    return Audit(
        turn_id=turn_id,
        version=version,
        verdict=verdict,
        reason=reason,
        differences=unpack_floats(differences),
        time=time,
    )


def aligned_count(connection: Connection, version: int) -> int:
    """The number of turns of a version that were found aligned."""
    return int(connection.value("SELECT count(*) FROM audits WHERE version = ? AND verdict = 'aligned'", version))


def audit_figures(connection: Connection) -> AuditFigures:
    """Counts of all audits, and the differences found by the latest `RECENT` comparisons."""
    verdicts = tally(connection, "audits")
    rows = connection.execute(
        f"SELECT differences, time FROM audits WHERE {_COMPARED} ORDER BY time DESC LIMIT ?", (RECENT,)
    ).fetchall()
    differences: list[float] = []
    for packed, _ in rows:
        with suppress(DamagedRecord):
            differences += unpack_floats(packed)
    differences.sort()
    if not differences:
        return AuditFigures(verdicts)
    return AuditFigures(
        verdicts,
        turns=len(rows),
        tokens=len(differences),
        mean=math.fsum(differences) / len(differences),
        p99=differences[min(len(differences) - 1, len(differences) * 99 // 100)],
        largest=differences[-1],
        time=rows[0][1],
    )
