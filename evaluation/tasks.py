"""Tasks of the suites `coding` and `tool-use`, and of suites that users add: JSONL, one task a line, checked before
anything runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from openclaw_rl.shared.errors import ConfigError

FOLDER = Path(__file__).with_name("builtin")


class CodingTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Code to write. `tests` are Python statements that see the code's names; the policy never sees them. `solution` is
    a reference, for those who check the task.
    """

    id: str
    prompt: str
    tests: list[str]
    solution: str = ""


class ToolCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call by name, with every argument."""

    name: str
    arguments: dict[str, Any]


class ToolTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request with tools on offer (OpenAI's form). `expect` is the one right call, a list of calls of which any is
    right, or null where no tool should be called.
    """

    id: str
    request: str
    tools: list[dict[str, Any]]
    expect: ToolCall | list[ToolCall] | None

    @property
    def right_calls(self) -> list[ToolCall]:
        """Every call that is right; none where no tool should be called."""
        if self.expect is None:
            return []
        return [self.expect] if isinstance(self.expect, ToolCall) else self.expect


SuiteTask = CodingTask | ToolTask


def builtin(suite: str) -> list[SuiteTask]:
    """The tasks that come with `coding` or `tool-use`."""
    return load(FOLDER / f"{suite.replace('-', '_')}.jsonl")


def load(path: Path) -> list[SuiteTask]:
    """The tasks of a file: lines with `tests` are coding tasks, lines with `tools` tool tasks.

    Raises `ConfigError` that names file and line of the first mistake.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    tasks: list[SuiteTask] = []
    seen: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            task = _task(msgspec.json.decode(line))
        except (msgspec.DecodeError, ValueError) as error:
            raise ConfigError(f"{path}:{number}: {error}") from error
        if task.id in seen:
            raise ConfigError(f"{path}:{number}: the id {task.id!r} is that of line {seen[task.id]}")
        seen[task.id] = number
        tasks.append(task)
    if not tasks:
        raise ConfigError(f"{path} holds no task")
    return tasks


def _task(row: Any) -> SuiteTask:
    if not isinstance(row, dict):
        raise ValueError("a task is a JSON object")
    if "tests" not in row and "tools" not in row:
        raise ValueError("a coding task has `tests`, a tool task `tools`; this has neither (docs/evaluation.md)")
    if "tools" in row:
        if "expect" not in row:
            raise ValueError("`expect` is missing: the right call, a list of them, or null for none")
        tool = msgspec.convert(row, ToolTask)
        names = [_name(number, definition) for number, definition in enumerate(tool.tools)]
        for call in tool.right_calls:
            if call.name not in names:
                raise ValueError(f"the expected tool {call.name!r} is not on offer; there is {', '.join(names)}")
        if tool.expect == []:
            raise ValueError("`expect` is an empty list; write null where no tool should be called")
        return tool
    coding = msgspec.convert(row, CodingTask)
    if not coding.tests:
        raise ValueError("`tests` is empty")
    for test in coding.tests:
        try:
            compile(test, "test", "exec")
        except SyntaxError as error:
            raise ValueError(f"the test {test!r} is no Python: {error.msg}") from error
    return coding


def _name(number: int, definition: dict[str, Any]) -> str:
    function = definition.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    if definition.get("type") != "function" or not isinstance(name, str):
        raise ValueError(f'tool {number} is not of the form {{"type": "function", "function": {{"name": …}}}}')
    return name
