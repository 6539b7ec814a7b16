from __future__ import annotations

import subprocess
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from openclaw_rl.environments.tasks.swe.one_file import KINDS, OneFileModules, draw
from tests.environments.tasks.local_trial import LocalTrial, trial_reward

KIND = OneFileModules()


def _write(number: int, folder: Path) -> str:
    task = next(islice(KIND.tasks("train", 5), number, None)).id
    KIND.folder(task).write(folder)
    return task


@pytest.mark.parametrize("number", range(len(KINDS)))
def test_the_solution_passes_and_empty_work_fails_its_test_alone(number: int, tmp_path: Path) -> None:
    drawn = KIND.draw(_write(number, tmp_path / "task"))
    passed, report = trial_reward(tmp_path / "task", tmp_path / "solved", LocalTrial.solve)
    assert passed == "1", report
    assert f"+    {drawn.new}" in report
    assert "lint: " in report
    failed, report = trial_reward(tmp_path / "task", tmp_path / "empty", "true")
    assert failed == "0"
    assert [line.split(": ")[1] for line in report.splitlines() if line.startswith("failed")] == [*drawn.fail_to_pass]


def test_one_edit_mends_every_module() -> None:
    for number in range(60):
        drawn = draw(Random(number), "train")
        assert drawn.source.count(drawn.old) == 1
        assert _passes(drawn.source.replace(drawn.old, drawn.new), drawn.test, drawn.path)
        assert not _passes(drawn.source, drawn.test, drawn.path)


def _passes(source: str, test: str, path: str) -> bool:
    """Run the assertions without unittest: the calls of the hidden test in the module's names."""
    names: dict[str, object] = {}
    exec(compile(source, path, "exec"), names)
    for line in test.splitlines():
        if "assertEqual(" in line:
            call, _, value = line.strip().removeprefix("self.assertEqual(")[:-1].rpartition(", ")
            if eval(call, names) != eval(value):
                return False
    return True


def test_held_out_combinations_are_never_trained_on() -> None:
    trained = {draw(Random(f"a{seed}"), "train").combination for seed in range(300)}
    held_out = {draw(Random(f"b{seed}"), "held-out").combination for seed in range(300)}
    assert not trained & held_out


def test_the_same_id_is_the_same_commit(tmp_path: Path) -> None:
    heads = set()
    for name in ("a", "b"):
        _write(1, tmp_path / name)
        git = ["git", "-C", str(tmp_path / name / "environment/workspace"), "rev-parse", "base", "HEAD"]
        heads |= set(subprocess.run(git, capture_output=True, text=True, check=True).stdout.split())
    assert len(heads) == 1
