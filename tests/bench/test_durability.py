from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bench.durability import KINDS, Findings, check, fingerprint
from openclaw_rl.shared.journal import Journal
from tests.shared.journal_records import make_turn

ROOT = Path(__file__).parents[2]


def test_writes_acknowledged_before_a_kill_are_found_again(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.durability", "--kills", "1", "--json", "--folder", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["acknowledged"]["turn"] > 0
    assert result["lost"] == dict.fromkeys(KINDS, 0)
    assert (result["changed"], result["twice"]) == (0, 0)
    assert list(tmp_path.iterdir()) == []


def test_lost_and_changed_records_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = Journal(path)
    turn = make_turn()
    journal.record_turn(turn)
    journal.close()
    findings = Findings()
    acknowledged = [
        ["turn", turn.turn_id, fingerprint(turn)],
        ["turn", turn.turn_id, "another digest"],
        ["turn", "turn_lost", ""],
        ["next_state", turn.turn_id, ""],
        ["feedback", f"{turn.turn_id} fb_lost", ""],
        ["sample", "smp_lost", ""],
        ["version", "3", ""],
    ]
    check(path, acknowledged, findings)
    assert dict(findings.lost) == dict.fromkeys(KINDS, 1)
    assert findings.changed == 1
