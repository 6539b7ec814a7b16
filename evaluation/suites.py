"""The suites `coding` and `tool-use`, and those that users add: each task is asked once a seed and scored 0 or 1."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from openclaw_rl.evaluation import sandbox
from openclaw_rl.evaluation.client import ChatClient, ChatReply
from openclaw_rl.evaluation.gather import gather
from openclaw_rl.evaluation.probe import NEVER_TRAIN, sampling_seed
from openclaw_rl.evaluation.tasks import CodingTask, SuiteTask, ToolTask

ANSWER_TOKENS = 1024
_FENCE = re.compile(r"```[ \t]*([\w+-]*)[^\n]*\n(.*?)(?:```|\Z)", re.DOTALL)


@dataclass(frozen=True)
class TaskScore:
    """How one task went: `score` 0 or 1, and why not 1."""

    id: str
    score: float
    failure: str = ""


async def run(
    client: ChatClient, tasks: Sequence[SuiteTask], *, seed: int, model: str | None = None, concurrency: int = 4
) -> list[TaskScore]:
    """The score of every task, in order; `seed` decides the sampling. Raises `evaluation.client.ServiceError`."""
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
