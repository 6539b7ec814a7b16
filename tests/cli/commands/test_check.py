"""`openclaw-rl check` names what is not as it was written in a data folder."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from openclaw_rl.cli.checks.data import quick_faults, whole_faults
from openclaw_rl.cli.main import app
from openclaw_rl.shared.checkpoints import SERVED, seal
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.journal import Journal
from openclaw_rl.shared.journal.journal import Operations
from openclaw_rl.shared.records import PolicyVersion, Turn
from tests.shared.journal_records import agent_turns, judged, make_turn, sample_of, thumb, user_reply


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder with turns, a version that learned from one, and its checkpoint."""
    folder = tmp_path / "data"
    with closing(Journal(folder / "journal.db")) as journal:
        journal.commit_version(PolicyVersion(number=0, parent=None, state="retired", checkpoint=""))
        turns: list[Turn] = [make_turn(), make_turn(), *agent_turns(3, "agent")]
        for turn in turns:
            journal.open_episode(turn.session_id, "policy", "test")
            journal.record_turn(turn)
            journal.settle(user_reply(turn))
        word = thumb(turns[0])
        journal.add_feedback(word)
        sample = sample_of(turns[0])
        journal.add_sample(sample)
        journal.add_judgement(judged(turns[0], feedback=word))
        checkpoint = folder / "checkpoints" / "1"
        (checkpoint / SERVED).mkdir(parents=True)
        (checkpoint / SERVED / "adapter_model.safetensors").write_bytes(b"weights" * 100)
        (checkpoint / "trainer.pt").write_bytes(b"state" * 100)
        seal(checkpoint, parent=0, sample_ids=[sample.sample_id])
        journal.commit_version(
            PolicyVersion(number=1, parent=0, state="live", checkpoint=str(checkpoint), sample_ids=[sample.sample_id])
        )
    return folder


def faults(data: Path) -> list[str]:
    with closing(Journal(data / "journal.db")) as journal:
        return list(whole_faults(journal, data / "checkpoints"))


def execute(data: Path, statement: str) -> None:
    with closing(sqlite3.connect(data / "journal.db", isolation_level=None)) as file:
        assert file.execute(statement).rowcount


def run_check(data: Path, *more: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["check", "--data", str(data), *more])
    return result.exit_code, result.stdout


def test_a_data_folder_that_is_well_has_no_fault(data: Path) -> None:
    assert faults(data) == []
    code, shown = run_check(data)
    assert (code, shown) == (0, "5 turns and 2 versions are what was written; every settled turn has its place.\n")


Damage = Callable[[Path], None]


@pytest.mark.parametrize(
    ("damage", "fault", "quick"),
    [
        (lambda data: execute(data, "DELETE FROM judge_queue"), "4 settled turns are in no place", True),
        (lambda data: execute(data, "DELETE FROM version_samples"), "1 samples are learned from, and no", True),
        (lambda data: execute(data, "UPDATE versions SET state = 'retired'"), "none is live", True),
        (lambda data: execute(data, "UPDATE samples SET state = 'ready'"), "a version holds them", True),
        (lambda data: execute(data, "INSERT INTO blobs VALUES (999, x'00', x'00')"), "1 messages belong to no", True),
        (lambda data: (data / "checkpoints" / "0").mkdir(), "checkpoints/0 belongs to no version", True),
        (lambda data: (data / "checkpoints" / "1" / "trainer.pt").write_bytes(b"x"), "trainer.pt has 1 bytes", False),
        (lambda data: execute(data, "UPDATE samples SET reward = 0.5"), "its sample is not what was written", False),
        (lambda data: execute(data, "UPDATE contents SET response_ids = x'02' WHERE turn = 2"), "turn number 2", False),
        (lambda data: execute(data, "UPDATE next_states SET body = x'00'"), "turn number 5", False),
        (
            lambda data: execute(data, "DELETE FROM turns WHERE id = 5"),
            "rows of contents refer to rows of turns",
            False,
        ),
    ],
)
def test_each_damage_is_named(data: Path, damage: Damage, fault: str, quick: bool) -> None:
    damage(data)
    assert any(fault in one for one in faults(data))
    with closing(Journal(data / "journal.db")) as journal:
        assert any(fault in one for one in quick_faults(journal, data / "checkpoints")) == quick


def test_the_folder_of_a_step_in_progress_is_no_fault(data: Path) -> None:
    (data / "checkpoints" / "2").mkdir()
    (data / "checkpoints" / ".3.tmp").mkdir()
    assert faults(data) == []


class Busy(Journal):
    """A journal into which the learner commits a version after each look at the versions."""

    def run(self, operation: Any, /, *arguments: Any, **named: Any) -> Any:
        found = super().run(operation, *arguments, **named)
        if operation in (Operations.__dict__["versions"], Operations.__dict__["next_version_number"]):
            number = super().run(Operations.__dict__["next_version_number"])
            folder = Path(self.path).parent / "checkpoints" / str(number)
            folder.mkdir()
            version = PolicyVersion(number=number, parent=1, state="candidate", checkpoint=str(folder))
            super().run(Operations.__dict__["commit_version"], version)
        return found


def test_a_version_that_is_committed_during_the_check_is_no_fault(data: Path) -> None:
    with closing(Busy(data / "journal.db")) as journal:
        assert quick_faults(journal, data / "checkpoints") == []
        assert len(journal.versions()) == 4


def test_the_exit_code_and_the_json_say_that_something_is_wrong(data: Path) -> None:
    execute(data, "DELETE FROM judge_queue")
    code, shown = run_check(data)
    assert code == 1 and shown.startswith("FAULT  4 settled turns")
    code, shown = run_check(data, "--json")
    found = json.loads(shown)
    assert (code, found["turns"], found["versions"], found["accounting"]["lost"]) == (1, 5, 2, 4)
    assert found["faults"] == ["4 settled turns are in no place"]


def test_a_folder_without_a_journal_is_an_error(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["check", "--data", str(tmp_path)])
    assert isinstance(result.exception, ConfigError) and "there is no journal" in str(result.exception)
