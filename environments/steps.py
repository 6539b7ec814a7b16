"""Environments that answer tool calls, and the one loop that makes a harness of each."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal, Protocol

import msgspec

from openclaw_rl.environments.attempt import Attempt, Endpoint, EnvironmentFault, Task
from openclaw_rl.shared.chat_client import ChatClient, ChatError, Message
from openclaw_rl.shared.errors import ConfigError

CLOSE_SECONDS = 10.0
CONTEXT_FULL = "context_length_exceeded"

log = logging.getLogger(__name__)


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
        """Judge the attempt. `answer` is the agent's answer without a call, "" if it never came to one."""
        ...

    async def close(self) -> None:
        """End processes and delete files. May be called twice."""
        ...


METHODS = ("reset", "tools", "call", "evaluate", "close")
End = Literal["answer", "done", "max_steps", "context"]
"""The end of an attempt: the agent answered without a call; the environment was done; the step limit; the agent's
context was full.
"""


class ToolLoop:
    """A harness for environments that answer tool calls: ask the policy, carry out its calls in their order, send all
    results back, until it answers without a call.

    `environment` makes one for each attempt. `seed` goes to `reset`. An attempt has at most `max_steps` model calls.
    `sampling` goes into every request (`temperature`, `max_tokens`). Raises `ConfigError` for an object that is no
    `StepEnvironment`.
    """

    def __init__(
        self,
        environment: Callable[[], StepEnvironment],
        *,
        seed: int = 0,
        max_steps: int = 10,
        sampling: Mapping[str, Any] | None = None,
    ) -> None:
        self._create = environment
        self._seed = seed
        self._max_steps = max_steps
        self._sampling = dict(sampling or {})
        self._in_use: set[int] = set()

    async def run(self, task: Task, endpoint: Endpoint) -> Attempt:
        """One attempt. Its `detail` has the verdict's and `end`. A full context is an `agent_error`; the verdict is on
        what the agent left.

        Raises `EnvironmentFault`; `ConfigError` for an environment that breaks the protocol, or whose tools or messages
        the service refuses; `ChatError` when the service stays away.
        """
        async with self._fresh() as environment:
            dialogue = _Dialogue()
            end = await self._talk(environment, task, endpoint, dialogue)
            verdict = checked_verdict(await environment.evaluate(dialogue.answer), environment)
        return Attempt(
            reward=verdict.reward,
            status="agent_error" if end == "context" else "ok",
            detail={"end": end, **verdict.detail},
            next_state="\n".join(filter(None, [*dialogue.unread, verdict.next_state])),
            steps=dialogue.steps,
        )

    @asynccontextmanager
    async def _fresh(self) -> AsyncIterator[StepEnvironment]:
        """An environment for one attempt, closed in every case."""
        environment = self._create()
        if id(environment) in self._in_use:
            raise ConfigError(
                f"environment() returned the same {_name(environment)} for two attempts at a time; return a new one"
            )
        self._in_use.add(id(environment))
        try:
            async with _closing(environment):
                yield environment
        finally:
            self._in_use.discard(id(environment))

    async def _talk(self, environment: StepEnvironment, task: Task, endpoint: Endpoint, dialogue: _Dialogue) -> End:
        first = _checked(await environment.reset(task, self._seed), environment, "reset")
        tools = checked_tools(await environment.tools(), environment)
        if not (first.text or task.prompt or first.images):
            raise ConfigError(f"task {task.id!r} has no prompt, and reset() of {_name(environment)} returned no text")
        dialogue.messages.append(_user(first.text or task.prompt, first.images))
        options = {**self._sampling, "tools": tools} if tools else self._sampling
        async with ChatClient(endpoint.base_url, endpoint.api_key, model=endpoint.model) as client:
            while dialogue.steps < self._max_steps:
                try:
                    reply = await client.chat(dialogue.messages, **options)
                except ChatError as error:
                    if error.code == CONTEXT_FULL:
                        return "context"
                    raise _refusal(error, environment) from error
                dialogue.hear(reply.message)
                if not reply.tool_calls:
                    dialogue.answer = reply.text
                    return "answer"
                if await _carry_out(environment, reply.tool_calls, _names(tools), dialogue):
                    return "done"
        return "max_steps"


class _Dialogue:
    """The messages so far. `steps`: answers of the agent. `unread`: texts that followed its last answer and have not
    been part of a request.
    """

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.unread: list[str] = []
        self.answer = ""
        self.steps = 0

    def hear(self, message: Message) -> None:
        """An answer of the agent; it has read all before it."""
        self.messages.append(message)
        self.unread = []
        self.steps += 1

    def result(self, call_id: str, text: str) -> None:
        """The result of a call."""
        self.messages.append({"role": "tool", "tool_call_id": call_id, "content": text})
        self.unread.append(text)


async def _carry_out(
    environment: StepEnvironment, calls: Sequence[Mapping[str, Any]], names: Sequence[str], dialogue: _Dialogue
) -> bool:
    """Carry out the calls of one answer, and add their results; True if the task is done, and the calls after that are
    left out. A call that cannot be read gets an answer that says so, and does not reach the environment.
    """
    images: list[str] = []
    done = False
    for call in calls:
        name, arguments, problem = read_call(call, names)
        if done:
            seen = Observation(text="not carried out: the task had ended")
        elif problem:
            seen = Observation(text=problem, error=True)
        else:
            seen = _checked(await environment.call(name, arguments), environment, "call")
        done = done or seen.done
        images += seen.images
        dialogue.result(str(call.get("id", "")), result_text(seen))
    if images:  # a tool's message holds text only, in OpenAI's schema
        dialogue.messages.append(_user("", images))
    return done


def result_text(seen: Observation) -> str:
    """The result as the agent and the judge read it: OpenAI's schema has no mark for an error, so the text has it."""
    return f"Error: {seen.text}" if seen.error and not seen.text.lower().startswith("error") else seen.text


def read_call(call: Mapping[str, Any], names: Sequence[str]) -> tuple[str, dict[str, Any], str]:
    """Name and arguments of a call on the wire; the third is the problem for one that cannot be read, else ""."""
    function = call.get("function") or {}
    name, text = str(function.get("name", "")), function.get("arguments") or "{}"
    if name not in names:
        return name, {}, f"there is no tool {name!r}; there is {', '.join(names) or 'none'}"
    try:
        arguments = json.loads(text) if isinstance(text, str) else text
    except ValueError as error:
        return name, {}, f"the arguments of {name} are no JSON: {error}"
    if not isinstance(arguments, dict):
        return name, {}, f"the arguments of {name} are a JSON {type(arguments).__name__}, not an object"
    return name, arguments, ""


@asynccontextmanager
async def _closing(environment: StepEnvironment) -> AsyncIterator[StepEnvironment]:
    """An environment that has the methods, closed in every case. A failure to close is logged: the verdict stands."""
    for method in METHODS:
        found = getattr(environment, method, None)
        if found is None:
            raise ConfigError(f"{_name(environment)} is no environment: it has no method {method}()")
        if not inspect.iscoroutinefunction(found):
            raise ConfigError(f"{_name(environment)}.{method} cannot be awaited: write `async def {method}`")
    try:
        yield environment
    finally:
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await environment.close()
        except Exception as error:
            log.warning("%s was not closed: %s: %s", _name(environment), type(error).__name__, error)


def _checked(value: object, environment: StepEnvironment, method: str) -> Observation:
    if isinstance(value, Observation):
        return value
    raise ConfigError(
        f"{method}() of {_name(environment)} returned {type(value).__name__}; it returns an Observation(text=…)"
    )


def checked_verdict(value: object, environment: object) -> Verdict:
    """The verdict of `evaluate`. Raises `ConfigError` for something else."""
    if isinstance(value, Verdict):
        return value
    raise ConfigError(
        f"evaluate() of {_name(environment)} returned {type(value).__name__}; it returns a Verdict(reward=…)"
    )


def checked_tools(value: object, environment: object) -> list[dict[str, Any]]:
    """Tools in OpenAI's schema, each name once. Raises `ConfigError`."""
    tools: list[Any] = value if isinstance(value, list) else [value]
    for tool in tools:
        function = tool.get("function") if isinstance(tool, dict) and tool.get("type") == "function" else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise ConfigError(
                f"tools() of {_name(environment)} returned {json.dumps(tool, default=str)[:200]}; each tool is "
                '{"type": "function", "function": {"name": …, "description": …, "parameters": …}}'
            )
    names = _names(tools)
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"tools() of {_name(environment)} returned {', '.join(twice)} more than once")
    return tools


def _names(tools: Sequence[Mapping[str, Any]]) -> list[str]:
    return [tool["function"]["name"] for tool in tools]


def _name(environment: object) -> str:
    return type(environment).__name__


def _refusal(error: ChatError, environment: StepEnvironment) -> Exception:
    """A refused request as the runner takes it: a body that the service does not take will not be taken next time."""
    if error.status == 400:
        return ConfigError(f"the service does not take the messages or tools of {_name(environment)}: {error}")
    if error.status in (401, 403, 404, 409):
        return EnvironmentFault(f"the session has ended: {error}")
    return error


def _user(text: str, images: Sequence[str]) -> Message:
    if not images:
        return {"role": "user", "content": text}
    parts: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    return {"role": "user", "content": parts + [{"type": "image_url", "image_url": {"url": url}} for url in images]}
