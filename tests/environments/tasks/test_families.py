"""The families of tasks at a computer: their solutions work, nothing else does, and the splits are apart."""

from __future__ import annotations

import subprocess
import sys
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from openclaw_rl.environments.tasks.families.computer_task import ComputerTask, draw_of_split
from openclaw_rl.environments.tasks.families.draws import FAMILIES, drawn_task, drawn_tasks

ALL = {name: draw for families in FAMILIES.values() for name, draw in families.items()}


def drawn(family: str, number: int = 1) -> list[ComputerTask]:
    random = Random(family)
    return [draw_of_split(ALL[family], random, "train") for _ in range(number)]


def carry_out(task: ComputerTask, folder: Path) -> None:
    """Do the calls of the solution in a folder with the task's files."""
    for path, text in task.files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    commands = [call.arguments["command"] for call in task.calls if call.name == "bash"]
    subprocess.run(["bash", "-ec", "\n".join(commands)], cwd=folder, check=True, capture_output=True)
    for call in (call for call in task.calls if call.name == "edit"):
        path = folder / call.arguments["path"]
        assert path.read_text().count(call.arguments["old"]) == 1
        path.write_text(path.read_text().replace(call.arguments["old"], call.arguments["new"]))


def files_in(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("family", ALL)
def test_the_solution_passes_and_no_work_fails(family: str, tmp_path: Path) -> None:
    for number, task in enumerate(drawn(family, 4)):
        folder = tmp_path / str(number)
        folder.mkdir()
        carry_out(task, folder)
        assert task.mistake(files_in(folder)) == ""
        assert task.mistake(task.files) != ""


@pytest.mark.parametrize("family", FAMILIES["swe"])
def test_the_tests_of_a_module_fail_before_and_pass_after(family: str, tmp_path: Path) -> None:
    [task] = drawn(family)
    [path] = task.files
    for text, passes in ((task.files[path], False), (task.wanted[path], True)):
        (tmp_path / path).write_text(text)
        program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); sys.dont_write_bytecode = True\n{task.tests}"
        ended = subprocess.run([sys.executable, "-S", "-c", program], capture_output=True, text=True)
        assert (ended.returncode == 0) == passes, ended.stderr


def test_other_files_have_to_stay_as_they_were() -> None:
    [task] = drawn("copy")
    other = next(path for path in task.files if path not in task.values)
    after = task.files | task.wanted
    assert task.mistake(after) == ""
    assert task.mistake(after | {other: "else"}) == f"{other} was changed"
    assert task.mistake(after | {"new.txt": "harmless"}) == ""


@pytest.mark.parametrize("family", ALL)
def test_values_stand_behind_a_blank_in_short_requests(family: str) -> None:
    """There a word is the same tokens as in a command."""
    for task in drawn(family, 30):
        assert len(task.request.split()) <= 20
        copied = task.values[1:] if task.tests else task.values  # the name of the function is in no call
        named = [value for value in copied if value in task.request]
        assert named and all(f" {value}" in task.request for value in named)


@pytest.mark.parametrize("family", ALL)
def test_no_combination_is_in_both_splits(family: str) -> None:
    random = Random(5)
    splits = {
        split: {draw_of_split(ALL[family], random, split).values for _ in range(300)}  # type: ignore[arg-type]
        for split in ("train", "held-out")
    }
    assert len(splits["held-out"]) > 250, "an open vocabulary"
    assert not splits["train"] & splits["held-out"]


def test_a_search_for_a_word_finds_that_word_alone() -> None:
    for task in drawn("find", 60):
        word, file = task.values
        assert [path for path, text in task.files.items() if word in text] == [file]
    for task in drawn("count", 60):
        file, word = task.values
        assert sum(word in line for line in task.files[file].splitlines()) == int(task.wanted["answer.txt"])


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_task_is_the_same_from_its_name_alone(kind: str) -> None:
    tasks = list(islice(drawn_tasks(kind, "held-out", 3), 60))
    assert tasks == list(islice(drawn_tasks(kind, "held-out", 3), 60))
    assert tasks != list(islice(drawn_tasks(kind, "held-out", 4), 60))
    made = [drawn_task(task.id) for task in tasks]
    assert [task.request for task in made] == [task.prompt for task in tasks]
    assert {task.family for task in made} == set(FAMILIES[kind])


def test_names_of_other_tasks_are_refused() -> None:
    for name in ("sums/train/0/1", "terminal/validation/0/1", ""):
        with pytest.raises(ValueError, match="no task of terminal or swe"):
            drawn_task(name)
