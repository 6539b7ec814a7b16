"""The independent checker finds what it is for."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from bench.reliability_check import check, content_of, figures
from openclaw_rl.shared.checkpoints import seal
from openclaw_rl.shared.journal import Journal
from openclaw_rl.shared.records import Feedback, Judgement, NextState, PolicyVersion, Sample
from tests.learner.things import turn

ROOT = Path(__file__).parents[2]
FIRST, SECOND = (turn(number).turn_id for number in (1, 2))
EVENTS = [
    {"kind": "turn", "turn_id": FIRST, "tokens": 3, "session_id": "session-1"},
    {"kind": "turn", "turn_id": SECOND, "after": FIRST},
    {"kind": "next_state", "turn_id": FIRST, "session_id": "session-1"},
    {"kind": "feedback", "turn_id": FIRST, "feedback_id": "fb_00000001", "session_id": "session-1"},
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A journal with two turns that version 1 has learned from, and its checkpoint."""
    folder = tmp_path / "data" / "checkpoints" / "1"
    (folder / "served").mkdir(parents=True)
    (folder / "served" / "adapter.bin").write_bytes(b"weights")
    (folder / "meta.json").write_text(json.dumps({"step": 1}))
    journal = Journal(tmp_path / "data" / "journal.db")
    for asked in (turn(1), turn(2, parent_turn_id=FIRST)):
        journal.record_turn(asked)
        journal.settle(NextState(turn_id=asked.turn_id, role="user", text="no, shorter"))
        sample = Sample(
            sample_id=f"sample of {asked.turn_id}", turn_id=asked.turn_id, policy="policy", origin="turn",
            prompt_ids=asked.prompt_ids, response_ids=asked.response_ids, logprobs=asked.logprobs,
            versions=asked.versions, reward=-1.0,
        )  # fmt: skip
        journal.add_sample(sample)
        journal.add_judgement(Judgement(turn_id=asked.turn_id, score=-1.0))
    journal.add_feedback(Feedback(feedback_id="fb_00000001", turn_id=FIRST, session_id="session-1", score=-1.0))
    ids = [f"sample of {one}" for one in (FIRST, SECOND)]
    seal(folder, parent=0, sample_ids=ids)
    journal.commit_version(PolicyVersion(number=0, parent=None, state="live", checkpoint=""))
    version = PolicyVersion(
        number=1, parent=0, state="live", checkpoint=str(folder), sample_ids=ids, metrics={"step": 1}
    )
    journal.commit_version(version)
    journal.close()
    return tmp_path / "data"


def test_nothing_is_found_in_a_sound_folder(data: Path) -> None:
    assert not any(check(data, EVENTS).values())
    assert figures(data) == {"versions": 1, "settled": 2, "dropped": 0}


@pytest.mark.parametrize(
    ("kind", "statement"),
    [
        ("acknowledged", "DELETE FROM next_states"),
        ("acknowledged", "DELETE FROM feedback"),
        ("acknowledged", "UPDATE turns SET response_tokens = 2"),
        ("acknowledged", "UPDATE turns SET turn_id = 'x' WHERE id = 1"),
        ("acknowledged", "UPDATE turns SET parent_turn_id = NULL"),
        ("acknowledged", "UPDATE turns SET status = 'aborted'"),
        ("lost", "DELETE FROM judgements; DELETE FROM judge_queue"),
        ("lost", "DELETE FROM version_samples; DELETE FROM samples; DELETE FROM judge_queue"),
        ("lost", "DELETE FROM version_samples"),
        ("twice", "UPDATE samples SET state = 'ready'"),
        ("twice", "UPDATE samples SET state = 'quarantined' WHERE id = 1"),
        ("twice", "UPDATE versions SET state = 'rejected' WHERE number = 1"),
        ("twice", "UPDATE samples SET turn = 1"),
        ("lineage", "UPDATE versions SET state = 'retired'"),
        ("lineage", "UPDATE versions SET parent = 1 WHERE number = 1"),
        ("lineage", "UPDATE versions SET metrics = '{\"step\": 3}' WHERE number = 1"),
        ("files", "UPDATE versions SET metrics = '{\"step\": 3}' WHERE number = 1"),
        ("files", "DELETE FROM version_samples WHERE position = 0"),
        ("journal", "DELETE FROM turns"),
    ],
)
def test_changed_rows_are_found(data: Path, kind: str, statement: str) -> None:
    connection = sqlite3.connect(data / "journal.db")
    connection.executescript(statement)
    connection.close()
    assert check(data, EVENTS)[kind]


def test_turns_that_were_too_old_count_as_dropped(data: Path) -> None:
    connection = sqlite3.connect(data / "journal.db")
    connection.executescript(
        "INSERT INTO quarantines (turn, reason, time) VALUES (1, 'stale: 9 versions', 1.0); "
        "DELETE FROM version_samples; UPDATE samples SET state = 'quarantined'"
    )
    connection.close()
    assert figures(data)["dropped"] == 1


def test_the_checker_imports_nothing_of_the_project() -> None:
    program = (
        "import runpy, sys\n"
        "runpy.run_path('bench/reliability_check.py')\n"
        "print([name for name in sys.modules if name.startswith(('openclaw_rl', 'bench'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_changed_files_and_another_lineage_in_them_are_found(data: Path) -> None:
    meta = data / "checkpoints" / "1" / "meta.json"
    meta.write_text(json.dumps(json.loads(meta.read_text()) | {"parent": 7}))
    (data / "checkpoints" / "1" / "served" / "adapter.bin").write_bytes(b"damaged")
    assert len(check(data)["files"]) == 2
    meta.unlink()
    assert check(data)["files"] == ["version 1 has no files"]


def test_text_that_was_to_be_forgotten_is_found(data: Path) -> None:
    body = hashlib.sha256(b"body").digest()
    connection = sqlite3.connect(data / "journal.db")
    connection.execute("UPDATE blobs SET body = ? WHERE id = 1", (body,))
    connection.commit()
    connection.close()
    assert body.hex() in content_of(data, "session-1")
    events = [{"kind": "forgotten", "session_id": "session-1", "erased": [body.hex()]}]
    assert check(data, events)["acknowledged"] == ["journal.db still holds forgotten text"]
