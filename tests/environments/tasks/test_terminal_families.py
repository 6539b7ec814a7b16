from __future__ import annotations

from itertools import islice
from pathlib import Path
from random import Random

import pytest

from openclaw_rl.environments.kinds import Split
from openclaw_rl.environments.tasks.terminal.families import FAMILIES, TerminalFamilies, draw
from openclaw_rl.shared.errors import ConfigError
from tests.environments.tasks.local_trial import LocalTrial, trial_reward

KIND = TerminalFamilies()


def _ids(split: Split, count: int) -> list[str]:
    return [task.id for task in islice(KIND.tasks(split, 3), count)]


@pytest.mark.parametrize("number", range(len(FAMILIES)))
def test_the_solution_passes_and_empty_work_fails(number: int, tmp_path: Path) -> None:
    KIND.folder(_ids("train", len(FAMILIES))[number]).write(tmp_path / "task")
    passed, report = trial_reward(tmp_path / "task", tmp_path / "solved", LocalTrial.solve)
    assert (passed, report) == ("1", "passed\n")
    failed, report = trial_reward(tmp_path / "task", tmp_path / "empty", "true")
    assert failed == "0"
    assert "instead of" in report or "is missing" in report or "is still there" in report


def test_every_family_changes_something_and_says_its_values_in_quotes() -> None:
    for family in FAMILIES:
        for seed in range(40):
            drawn = draw(Random(seed), "train", family)
            assert drawn.expected != drawn.files or drawn.absent
            assert all(len(command) < 60 for command in drawn.commands)
            quoted = drawn.instruction.split('"')[1::2]
            assert quoted
            known = {*drawn.files, *drawn.expected}
            said = {word for value in quoted for word in value.split()}
            for word in " ".join(drawn.commands).split():
                if word in known:
                    assert word in said or family == "find"


def test_held_out_combinations_are_never_trained_on() -> None:
    trained = {draw(Random(f"a{seed}"), "train").combination for seed in range(300)}
    held_out = {draw(Random(f"b{seed}"), "held-out").combination for seed in range(300)}
    assert not trained & held_out


def test_the_same_id_is_the_same_task() -> None:
    task = _ids("held-out", 5)[4]
    assert KIND.draw(task) == KIND.draw(task)
    assert KIND.draw(task) != KIND.draw(task.replace("held-out", "train"))
    for wrong in ("terminal/test/0/1", "sums/train/0/1", "terminal/train/0/x", "terminal"):
        with pytest.raises(ConfigError, match="no task of the terminal families"):
            KIND.draw(wrong)


def _written(tmp_path: Path, family: str) -> Path:
    number = list(FAMILIES).index(family)
    KIND.folder(_ids("train", len(FAMILIES))[number]).write(tmp_path / "task")
    return tmp_path / "task"


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
    reward, report = trial_reward(_written(tmp_path, "count"), tmp_path / "trial", HACKS[hack])
    assert reward == "0", report
