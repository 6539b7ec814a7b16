"""The environment of tool calls: a request, tools to call, and checks of the calls made and of the last answer."""

from __future__ import annotations

from typing import Any, Protocol

from openclaw_rl.environments.attempt import Task
from openclaw_rl.environments.steps import Observation, Verdict
from openclaw_rl.environments.tools.checks import Checks, MadeCall, verdict
from openclaw_rl.shared.errors import ConfigError


class Toolset(Protocol):
    """The tools of one attempt. Each method raises `EnvironmentFault` if the tools fail, not the agent."""

    async def open(self, task: Task) -> None:
        """Make the tools ready."""
        ...

    async def definitions(self) -> list[dict[str, Any]]:
        """All tools, in the schema of OpenAI's `tools`."""
        ...

    async def call(self, name: str, arguments: dict[str, Any]) -> Observation:
        """The value that a tool returned, or with `error` the text of its error."""
        ...

    async def close(self) -> None:
        """End processes. May be called twice, and after a failed `open`."""
        ...


class ToolEnvironment:
    """A `StepEnvironment` over a set of tools. The task's data are `Checks`, and `tools` for the names of the tools
    offered, all if it names none.
    """

    def __init__(self, toolset: Toolset) -> None:
        self._toolset = toolset
        self._checks = Checks()
        self._task = Task(id="")
        self._calls: list[MadeCall] = []

    async def reset(self, task: Task, seed: int) -> Observation:
        self._task, self._checks, self._calls = task, Checks.from_data(task.data, task.id), []
        await self._toolset.open(task)
        return Observation()

    async def tools(self) -> list[dict[str, Any]]:
        definitions = {tool["function"]["name"]: tool for tool in await self._toolset.definitions()}
        wanted = list(definitions) if self._checks.tools is None else self._checks.tools
        if unknown := [name for name in wanted if name not in definitions]:
            raise ConfigError(f"task {self._task.id}: no tool {unknown[0]!r}; there are {', '.join(definitions)}")
        return [definitions[name] for name in wanted]

    async def call(self, name: str, arguments: dict[str, Any]) -> Observation:
        self._calls.append(MadeCall(name=name, arguments=arguments))
        return await self._toolset.call(name, arguments)

    async def evaluate(self, answer: str) -> Verdict:
        return await verdict(self._checks, self._task, self._calls, answer)

    async def close(self) -> None:
        await self._toolset.close()
