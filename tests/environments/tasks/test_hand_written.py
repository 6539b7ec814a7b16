from __future__ import annotations

from pathlib import Path

import pytest

from openclaw_rl.environments.tasks.terminal.hand_written import FOLDER, HandWritten, settings
from openclaw_rl.shared.errors import ConfigError
from tests.environments.tasks.local_trial import LocalTrial, trial_reward

KIND = HandWritten()
NAMES = sorted(settings())


def _write(name: str, folder: Path) -> Path:
    KIND.folder(f"hand-written/{name}").write(folder)
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_the_solution_passes_and_empty_work_fails(name: str, tmp_path: Path) -> None:
    task = _write(name, tmp_path / "task")
    assert trial_reward(task, tmp_path / "solved", LocalTrial.solve) == ("1", "passed\n")
    reward, report = trial_reward(task, tmp_path / "empty", "true")
    assert reward == "0"
    assert "Traceback" not in report


NOT_QUITE = {
    "background-server": "echo 0123456789abcdef $(printf 0123456789abcdef | sha256sum | cut -d ' ' -f 1) > receipt.txt",
    "error-report": "/solution/solve.sh; sed -i '2d' errors.csv",
    "fix-script": "sed -i 's/$1/\"$1\"/g' sizes.sh",
    "guilty-commit": "git -C adder -c safe.directory='*' rev-parse main > guilty.txt",
    "join-orders": "/solution/solve.sh; sed -i '$d' totals.csv",
    "lost-plan": "echo '# Plan' > plan.md",
    "merge-config": '/solution/solve.sh; sed -i \'s/true/"yes"/; s/false/"no"/\' merged.json; echo >> merged.json',
    "permissions": "chmod -R 755 site",
    "restore-backup": "mkdir restored; tar -xzf $(ls backups/*.tar.gz | head -1) -C restored etc",
    "sort-photos": "/solution/solve.sh; rm -r photos/undated; mkdir photos/undated",
}


@pytest.mark.parametrize("name", NAMES)
def test_work_that_is_not_quite_right_fails(name: str, tmp_path: Path) -> None:
    task = _write(name, tmp_path / "task")

    def work(trial: LocalTrial) -> None:
        trial.bring_solution()
        trial.run(NOT_QUITE[name])

    reward, report = trial_reward(task, tmp_path / "trial", work)
    assert (reward, "Traceback" in report) == ("0", False), report


def test_a_script_that_is_run_by_the_check_cannot_write_its_reward(tmp_path: Path) -> None:
    task = _write("fix-script", tmp_path / "task")
    script = "for f in ../../verifier/logs/verifier/reward.txt /logs/verifier/reward.txt; do echo 1 > $f; done"
    left = "(setsid sh -c 'sleep 30; echo 1 > /logs/verifier/reward.txt' &)"
    reward, _ = trial_reward(task, tmp_path / "trial", f'echo "{script}; {left}; echo passed; exit 0" > sizes.sh')
    assert reward == "0"


def test_tasks_are_the_same_at_every_call_and_all_held_out(tmp_path: Path) -> None:
    first, second = (KIND.folder(f"hand-written/{NAMES[0]}") for _ in range(2))
    assert first.tests == second.tests
    assert sorted(task.id for task in KIND.tasks("held-out", 0)) == [f"hand-written/{name}" for name in NAMES]
    with pytest.raises(ConfigError, match="are for measuring"):
        next(KIND.tasks("train", 0))
    with pytest.raises(ConfigError, match="is no hand-written task; there are background-server, "):
        KIND.folder("hand-written/../x")


def test_every_folder_is_listed() -> None:
    assert sorted(path.name for path in FOLDER.iterdir() if path.is_dir()) == NAMES
