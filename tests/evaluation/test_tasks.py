from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.evaluation import sandbox
from openclaw_rl.evaluation.tasks import CodingTask, ToolTask, builtin, load
from openclaw_rl.shared.errors import ConfigError

CODING = {"id": "double", "prompt": "Write double(n).", "tests": ["assert double(2) == 4"]}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
CALL = {"id": "look", "request": "Look!", "tools": [TOOL], "expect": {"name": "look", "arguments": {}}}


def _file(folder: Path, *rows: Any) -> Path:
    path = folder / "mine.jsonl"
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def test_there_are_thirty_of_each() -> None:
    coding, calls = builtin("coding"), builtin("tool-use")
    assert len(coding) == len(calls) == 30
    assert all(isinstance(task, CodingTask) and task.solution for task in coding)
    tools = [task for task in calls if isinstance(task, ToolTask)]
    assert len(tools) == 30
    assert sum(task.expect is None for task in tools) == 5


async def test_every_built_in_coding_task_is_solved_by_its_solution_and_not_by_nothing() -> None:
    for task in builtin("coding"):
        assert isinstance(task, CodingTask)
        name = task.id
        assert f"`{name}(" in task.prompt
        found = await sandbox.run(task.solution, task.tests)
        assert found.right, (task.id, found)
        empty = await sandbox.run(f"def {name}(*things):\n    return None\n", task.tests)
        assert not empty.right, task.id


def test_expected_arguments_are_those_of_the_tool() -> None:
    for task in builtin("tool-use"):
        assert isinstance(task, ToolTask)
        offered = {tool["function"]["name"]: tool["function"]["parameters"]["properties"] for tool in task.tools}
        for call in task.right_calls:
            assert call.arguments.keys() == offered[call.name].keys()


def test_files_of_both_kinds_are_read(tmp_path: Path) -> None:
    tasks = load(_file(tmp_path, CODING, "", CALL, CALL | {"id": "none", "expect": None}))
    assert [type(task).__name__ for task in tasks] == ["CodingTask", "ToolTask", "ToolTask"]


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("{", "mine.jsonl:2"),
        ("[]", "a task is a JSON object"),
        ({"id": "x"}, "neither"),
        (CODING | {"id": 3}, "id"),
        (CODING | {"test": []}, "test"),
        (CODING | {"tests": []}, "empty"),
        (CODING | {"tests": ["assert ("]}, "no Python"),
        (CODING, "line 1"),
        (CALL | {"expect": {"name": "listen", "arguments": {}}}, "not on offer"),
        (CALL | {"expect": []}, "write null"),
        ({key: value for key, value in CALL.items() if key != "expect"}, "expect"),
        (CALL | {"tools": [{"name": "look"}]}, "tool 0"),
    ],
)
def test_a_mistake_is_told_with_its_line(tmp_path: Path, row: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=r"mine\.jsonl:2") as caught:
        load(_file(tmp_path, CODING, row))
    assert told in str(caught.value)


def test_a_file_without_tasks_or_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no task"):
        load(_file(tmp_path, ""))
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "nothing.jsonl")
