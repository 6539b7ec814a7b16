"""Environments that answer tool calls, and the one loop that makes a harness of each."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from openclaw_rl.environments.attempt import Task


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """The environment's answer to a call, or its first message.

    `images` are data URLs. `error`: the call failed, and `text` says why; the agent reads it and may try again. `done`:
    the task has ended, and the agent is not asked again.
    """

    text: str = ""
    images: list[str] = []
    error: bool = False
    done: bool = False


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a task: `reward` is any finite number, `None` for no verdict. `detail` (JSON) is kept with the
    outcome. `next_state` is text about the last answer, which a judge may read (a failed test's output).
    """

    reward: float | None
    detail: dict[str, Any] = {}
    next_state: str = ""


class StepEnvironment(Protocol):
    """One task at a time, for one agent: `reset`, `tools`, any number of `call`, `evaluate`, `close`, in this order and
    never two at a time. Each attempt gets an object of its own; `close` is called in every case, after a failed `reset`
    too.

    Each method raises `EnvironmentFault` if the environment itself fails. A call that the agent got wrong is no fault:
    return an `Observation` with `error`.
    """

    async def reset(self, task: Task, seed: int) -> Observation:
        """Begin `task`, and return the first message to the agent; an empty text stands for the task's prompt. The same
        task and seed begin in the same state: the attempts of a group are compared.
        """
        ...

    async def tools(self) -> list[dict[str, Any]]:
        """The tools offered in this task, in the schema of OpenAI's `tools`; empty for none."""
        ...

    async def call(self, name: str, arguments: dict[str, Any]) -> Observation:
        """Carry out one call. `name` is one of the tools; the arguments are not checked against its schema."""
        ...

    async def evaluate(self, answer: str) -> Verdict:
        """Judge the attempt. `answer` is the agent's last text, "" if it never came to one."""
        ...

    async def close(self) -> None:
        """End processes and delete files. May be called twice."""
        ...
