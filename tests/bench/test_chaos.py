"""The checker of bench.chaos notices what it is there for, and a short run finds nothing."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bench.chaos.__main__ import FIGURES
from bench.chaos.checker import check
from openclaw_rl.shared.checkpoints import seal
from openclaw_rl.shared.journal import Journal
from openclaw_rl.shared.records import Feedback, NextState, PolicyVersion
from tests.shared.journal_records import make_turn, sample_of

ROOT = Path(__file__).parents[2]


def service_data(folder: Path) -> list[dict[str, Any]]:
    """A data folder as a service leaves it: two turns, a vote and a version. Returns the history of its client."""
    with closing(Journal(folder / "journal.db")) as journal:
        first = make_turn(turn_id="turn_1")
        second = make_turn(turn_id="turn_2", parent_turn_id="turn_1")
        for turn in (first, second):
            journal.record_turn(turn)
            journal.settle(NextState(turn_id=turn.turn_id, role="user", text="no"))
        journal.add_feedback(Feedback(feedback_id="fb_1", turn_id="turn_2", session_id=second.session_id, score=1.0))
        samples = [sample_of(turn) for turn in (first, second)]
        for sample in samples:
            journal.add_sample(sample)
        checkpoint = folder / "checkpoints" / "1"
        (checkpoint / "served").mkdir(parents=True)
        (checkpoint / "served" / "weights").write_bytes(b"weights")
        (checkpoint / "meta.json").write_text(json.dumps({"step": 1}))
        ids = [sample.sample_id for sample in samples]
        seal(checkpoint, parent=0, sample_ids=ids)
        journal.commit_version(PolicyVersion(number=0, parent=None, state="retired", checkpoint="", method="base"))
        version = PolicyVersion(
            number=1, parent=0, state="live", checkpoint=str(checkpoint), method="rehearse", sample_ids=ids
        )
        journal.commit_version(version)
    return [
        {"turn": "turn_1", "after": None},
        {"turn": "turn_2", "after": "turn_1"},
        {"turn": "turn_2", "feedback": "fb_1"},
    ]


def forge(folder: Path, *statements: str) -> None:
    with closing(Journal(folder / "journal.db")) as journal, journal.database.writing() as connection:
        for statement in statements:
            connection.execute(statement)


FORGERIES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "a turn is gone": (
        "lost_acknowledged",
        lambda folder: forge(folder, "UPDATE turns SET turn_id = 'x' WHERE id = 1"),
    ),
    "a turn has another parent": (
        "lost_acknowledged",
        lambda folder: forge(folder, "UPDATE turns SET parent_turn_id = NULL"),
    ),
    "a next state is gone": ("lost_acknowledged", lambda folder: forge(folder, "DELETE FROM next_states")),
    "a vote is gone": ("lost_acknowledged", lambda folder: forge(folder, "DELETE FROM feedback")),
    "a turn is nowhere": (
        "lost_samples",
        lambda folder: forge(
            folder,
            "DELETE FROM version_samples",
            "DELETE FROM samples",
            "DELETE FROM judge_queue",
        ),
    ),
    "a sample of a version is not consumed": (
        "lost_samples",
        lambda folder: forge(folder, "UPDATE samples SET state = 'ready' WHERE id = 1"),
    ),
    "a turn counts twice": (
        "consumed_twice",
        lambda folder: forge(folder, "UPDATE samples SET turn = 1, reward = 1.0"),
    ),
    "no version is live": (
        "lineage_mismatch",
        lambda folder: forge(folder, "UPDATE versions SET state = 'retired'"),
    ),
    "a version lacks a sample": (
        "lineage_mismatch",
        lambda folder: forge(folder, "DELETE FROM version_samples WHERE position = 0"),
    ),
    "a file is damaged": (
        "lineage_mismatch",
        lambda folder: (folder / "checkpoints/1/served/weights").write_bytes(b"Weights"),
    ),
    "the live version's files are gone": (
        "lineage_mismatch",
        lambda folder: shutil.rmtree(folder / "checkpoints/1"),
    ),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_the_checker_notices_a_broken_promise(tmp_path: Path, name: str) -> None:
    history = tmp_path / "history.jsonl"
    history.write_text("".join(json.dumps(one) + "\n" for one in service_data(tmp_path)))
    sound = check(tmp_path, history)
    counts = ("lost_acknowledged", "consumed_twice", "lost_samples", "dropped_share", "lineage_mismatch")
    assert (sound["turns"], sound["journal"]) == (2, "ok") and not any(sound[one] for one in counts)
    figure, damage = FORGERIES[name]
    damage(tmp_path)
    assert check(tmp_path, history)[figure] >= 1


def test_the_checker_imports_nothing_of_the_project() -> None:
    program = (
        "import runpy, sys\n"
        "try: runpy.run_path('bench/chaos/checker.py', run_name='__main__')\n"
        "except IndexError: pass\n"
        "print([name for name in sys.modules if name.startswith(('openclaw_rl', 'bench'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_kills_under_traffic_lose_nothing() -> None:
    command = [sys.executable, "-m", "bench.chaos", "--kills", "2", "--no-trials", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert set(FIGURES) <= set(result) and result["kills"] == 2 and result["turns"] > 0
