"""The suites `coding` and `tool-use`, and those that users add (JSONL, one task a line, checked before anything runs):
each task is asked once a seed and scored 0 or 1.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from openclaw_rl.evaluation import sandbox
from openclaw_rl.evaluation.probe import NEVER_TRAIN, sampling_seed
from openclaw_rl.shared.chat_client import ChatClient, ChatReply
from openclaw_rl.shared.datasets import json_rows
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.gather import gather

ANSWER_TOKENS = 1024
_FENCE = re.compile(r"```[ \t]*([\w+-]*)[^\n]*\n(.*?)(?:```|\Z)", re.DOTALL)
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
    tasks: dict[str, SuiteTask] = {}
    places: dict[str, str] = {}
    for place, row in json_rows(path):
        try:
            task = _task(row)
        except (msgspec.ValidationError, ValueError) as error:
            raise ConfigError(f"{place}: {error}") from error
        if task.id in tasks:
            raise ConfigError(f"{place}: the id {task.id!r} is that of {places[task.id]}")
        tasks[task.id], places[task.id] = task, place
    if not tasks:
        raise ConfigError(f"{path} holds no task")
    return list(tasks.values())


def _task(row: Any) -> SuiteTask:
    if not isinstance(row, dict):
        raise ValueError("a task is a JSON object")
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
    if "tests" not in row:
        raise ValueError("a coding task has `tests`, a tool task `tools`; this has neither (docs/evaluation.md)")
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


class TaskScore(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome of one task: `score` 0 or 1, and why not 1."""

    id: str
    score: float
    failure: str = ""


async def run(
    client: ChatClient, tasks: Sequence[SuiteTask], *, seed: int, model: str | None = None, concurrency: int = 4
) -> list[TaskScore]:
    """The score of every task, in order; `seed` decides the sampling. Raises `ChatError`."""
    gate = asyncio.Semaphore(concurrency)
    running = asyncio.Semaphore(2)

    async def one(number: int, task: SuiteTask) -> TaskScore:
        options: dict[str, Any] = {"max_tokens": ANSWER_TOKENS, "seed": sampling_seed(seed, number)}
        if model is not None:
            options["model"] = model
        if isinstance(task, ToolTask):
            options["tools"] = task.tools
        question = task.prompt if isinstance(task, CodingTask) else task.request
        async with gate:
            reply = await client.chat([{"role": "user", "content": question}], headers=NEVER_TRAIN, **options)
        if isinstance(task, ToolTask):
            return judge_call(task, reply)
        async with running:
            verdict = await sandbox.run(code_in(reply.text), task.tests)
        return TaskScore(task.id, float(verdict.right), verdict.failure)

    return await gather(*(one(number, task) for number, task in enumerate(tasks)))


def code_in(reply: str) -> str:
    """The code of a reply: its Python blocks one after the other, else its other blocks, else all of it."""
    blocks = [(language.lower(), code) for language, code in _FENCE.findall(reply)]
    python = [code for language, code in blocks if language in ("python", "py", "python3")]
    return "\n".join(python or [code for _, code in blocks]) or reply


def judge_call(task: ToolTask, reply: ChatReply) -> TaskScore:
    """1 for exactly one of the right calls, or none where none is right; else 0 with the reason."""
    calls = reply.tool_calls
    if task.expect is None:
        failure = f"called {_named(calls)}; no tool was needed" if calls else "" if reply.text.strip() else "no answer"
        return TaskScore(task.id, float(not failure), failure)
    if len(calls) != 1:
        return TaskScore(task.id, 0.0, f"called {_named(calls)}" if calls else "called no tool")
    function = calls[0].get("function") or {}
    try:
        arguments = json.loads(function.get("arguments") or "{}")
    except ValueError:
        return TaskScore(task.id, 0.0, f"the arguments of {function.get('name')} are no JSON")
    for call in task.right_calls:
        if function.get("name") == call.name and _same(arguments, call.arguments):
            return TaskScore(task.id, 1.0)
    given = json.dumps(arguments, ensure_ascii=False)[:200]
    return TaskScore(task.id, 0.0, f"called {function.get('name')} with {given}")


def _named(calls: Sequence[dict[str, Any]]) -> str:
    return ", ".join(str((call.get("function") or {}).get("name")) for call in calls)


def _same(found: Any, expected: Any) -> bool:
    """Equality of JSON values; blanks around a text do not count, true is not 1."""
    if isinstance(found, dict) and isinstance(expected, dict):
        return found.keys() == expected.keys() and all(_same(found[key], expected[key]) for key in expected)
    if isinstance(found, list) and isinstance(expected, list):
        return len(found) == len(expected) and all(map(_same, found, expected))
    if isinstance(found, str) and isinstance(expected, str):
        return found.strip() == expected.strip()
    return isinstance(found, bool) == isinstance(expected, bool) and bool(found == expected)
