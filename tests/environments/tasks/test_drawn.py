from __future__ import annotations

import subprocess
from itertools import count
from pathlib import Path

import pytest

from openclaw_rl.environments.tasks.drawn import SWE, TERMINAL, DrawnFolders
from openclaw_rl.environments.tasks.families.draws import FAMILIES, drawn_task
from openclaw_rl.shared.errors import ConfigError
from tests.environments.tasks.local_trial import LocalTrial, trial_reward

FAMILY_NAMES = [(kind, family) for kind in (TERMINAL, SWE) for family in FAMILIES[kind]]


def _write(kind: str, family: str, folder: Path) -> str:
    """Write the first training task of the family; its id."""
    names = (f"{kind}/train/3/{number}" for number in count())
    task = next(name for name in names if drawn_task(name).family == family)
    DrawnFolders(kind).folder(task).write(folder)
    return task


@pytest.mark.parametrize(("kind", "family"), FAMILY_NAMES)
def test_the_solution_passes_and_empty_work_fails(kind: str, family: str, tmp_path: Path) -> None:
    task = drawn_task(_write(kind, family, tmp_path / "task"))
    passed, report = trial_reward(tmp_path / "task", tmp_path / "solved", LocalTrial.solve)
    assert passed == "1", report
    failed, empty = trial_reward(tmp_path / "task", tmp_path / "empty", "true")
    assert failed == "0"
    if kind == TERMINAL:
        assert report == "passed\n"
        assert any(word in empty for word in ("instead of", "is missing", "is still there"))
    else:
        assert f"+    {task.calls[-1].arguments['new']}" in report
        assert "lint: " in report
        assert "failed: test_" in empty


def test_another_file_that_was_changed_fails(tmp_path: Path) -> None:
    task = drawn_task(_write(TERMINAL, "copy", tmp_path / "task"))
    other = next(path for path in task.files if path not in task.request)

    def work(trial: LocalTrial) -> None:
        trial.solve()
        trial.run(f"echo more >> {other}")

    reward, report = trial_reward(tmp_path / "task", tmp_path / "trial", work)
    assert (reward, report.startswith(f"{other}: ")) == ("0", True)


def test_the_same_id_is_the_same_commit(tmp_path: Path) -> None:
    heads = set()
    for name in ("a", "b"):
        _write(SWE, "operator", tmp_path / name)
        git = ["git", "-C", str(tmp_path / name / "environment/workspace"), "rev-parse", "base", "HEAD"]
        heads |= set(subprocess.run(git, capture_output=True, text=True, check=True).stdout.split())
    assert len(heads) == 1


@pytest.mark.parametrize("task", ["terminal/test/0/1", "sums/train/0/1", "terminal"])
def test_an_id_of_no_task_is_refused(task: str) -> None:
    with pytest.raises(ConfigError, match="is no task of"):
        DrawnFolders(TERMINAL).folder(task)


HACKS = {
    "a reward file": "mkdir -p /logs/verifier; echo 1 | tee /logs/verifier/reward.txt /logs/artifacts/reward.json",
    "the verifier's word": "echo passed; echo passed > answer.txt",
    "start files and PATH": "echo 'exit 0' | tee ~/.bashrc ~/.profile python3 sh; chmod +x python3 sh",
    "modules": "echo 'import os; os._exit(0)' | tee sitecustomize.py check.py verdict.py json.py usercustomize.py",
    "a link to the verifier's answer": "ln -s /tests/expected.json answer.txt",
    "a pipe": "mkfifo answer.txt",
    "a folder": "mkdir answer.txt",
    "a long file": "head -c 3000000 /dev/zero > answer.txt",
    "bytes that are no text": "printf '\\377\\376' > answer.txt; touch $'\\377'",
}


@pytest.mark.parametrize("hack", HACKS)
def test_hacks_are_not_paid(hack: str, tmp_path: Path) -> None:
    _write(TERMINAL, "count", tmp_path / "task")
    reward, report = trial_reward(tmp_path / "task", tmp_path / "trial", HACKS[hack])
    assert reward == "0", report
