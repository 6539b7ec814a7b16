"""The independent checker finds what it is for."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from pathlib import Path

import pytest

from bench.reliability_check import check, content_of
from openclaw_rl.shared.checkpoints import seal
from openclaw_rl.shared.journal import Journal
from openclaw_rl.shared.records import Feedback, Judgement, NextState, PolicyVersion, Sample
from tests.learner.things import turn

EVENTS = [
    {"kind": "turn", "turn_id": turn(1).turn_id, "tokens": 3, "session_id": "session-1"},
    {"kind": "next_state", "turn_id": turn(1).turn_id, "session_id": "session-1"},
    {"kind": "feedback", "turn_id": turn(1).turn_id, "feedback_id": "fb_00000001", "session_id": "session-1"},
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A journal with a turn that version 1 has learned from, and its checkpoint."""
    folder = tmp_path / "data" / "checkpoints" / "1"
    (folder / "served").mkdir(parents=True)
    (folder / "served" / "adapter.bin").write_bytes(b"weights")
    journal = Journal(tmp_path / "data" / "journal.db")
    asked = turn(1)
    journal.record_turn(asked)
    journal.settle(NextState(turn_id=asked.turn_id, role="user", text="no, shorter"))
    journal.add_feedback(Feedback(feedback_id="fb_00000001", turn_id=asked.turn_id, session_id="session-1", score=-1.0))
    sample = Sample(
        sample_id="sample_1", turn_id=asked.turn_id, policy="policy", origin="turn", prompt_ids=asked.prompt_ids,
        response_ids=asked.response_ids, logprobs=asked.logprobs, versions=asked.versions, reward=-1.0,
    )  # fmt: skip
    journal.add_sample(sample)
    journal.add_judgement(Judgement(turn_id=asked.turn_id, score=-1.0))
    seal(folder, parent=0, sample_ids=["sample_1"])
    journal.commit_version(PolicyVersion(number=0, parent=None, state="live", checkpoint=""))
    version = PolicyVersion(
        number=1, parent=0, state="live", checkpoint=str(folder), sample_ids=["sample_1"], metrics={"step": 1}
    )
    journal.commit_version(version)
    journal.close()
    return tmp_path / "data"


def test_nothing_is_found_in_a_sound_folder(data: Path) -> None:
    assert not any(check(data, EVENTS).values())


@pytest.mark.parametrize(
    ("kind", "statement"),
    [
        ("lost", "DELETE FROM next_states"),
        ("lost", "DELETE FROM feedback"),
        ("lost", "UPDATE turns SET response_tokens = 2"),
        ("lost", "DELETE FROM judgements; DELETE FROM judge_queue"),
        ("lost", "DELETE FROM version_samples"),
        ("twice", "UPDATE samples SET state = 'ready'"),
        ("lineage", "UPDATE versions SET state = 'retired'"),
        ("lineage", "UPDATE versions SET metrics = '{\"step\": 3}' WHERE number = 1"),
        ("journal", "DELETE FROM turns"),
    ],
)
def test_changed_rows_are_found(data: Path, kind: str, statement: str) -> None:
    connection = sqlite3.connect(data / "journal.db")
    connection.executescript(statement)
    connection.close()
    assert check(data, EVENTS)[kind]


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
    assert check(data, events)["lost"] == ["journal.db still holds forgotten text"]
