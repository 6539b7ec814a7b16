"""Kinds of environments by name: `sums`, `mcp:COMMAND`, or a file of your own (`./my_environment.py`).

A kind is made by a factory `create(spec, options)`: an object with `tasks`, and with `environment` (a
`StepEnvironment`, run by our tool loop) or `harness` (an agent of its own). If it has `close`, that ends what its
attempts share. A new kind is one entry in `KINDS`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Literal, Protocol

import msgspec

from openclaw_rl.environments.attempt import Harness, Task
from openclaw_rl.environments.steps import StepEnvironment, ToolLoop
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.hooks import is_hook, resolve

Split = Literal["train", "held-out"]
PAGE = "docs/environments.md"


class KindOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a kind. `tasks`: file or folder of tasks, "" for the kind's own. `tools_config`: file that describes
    tools, "" for none. `call_timeout`: maximum seconds of one call of a tool. For kinds whose agent is chosen: `agent`
    ("" for the kind's own) with `agent_options`, `sandbox` it works in, `programs` that it can read there, `timeout`
    seconds and `max_steps` model calls of it.
    """

    tasks: str = ""
    tools_config: str = ""
    call_timeout: float = 60.0
    agent: str = ""
    agent_options: dict[str, Any] = {}
    sandbox: str = "bubblewrap"
    programs: tuple[str, ...] = ()
    timeout: float = 600.0
    max_steps: int = 10


class TaskSource(Protocol):
    """The part that every kind has."""

    def tasks(self, split: Split, seed: int) -> Iterator[Task]:
        """The tasks of a split, without end or until they are all given, in an order that `seed` decides. No task is in
        both splits.
        """
        ...


class StepKind(TaskSource, Protocol):
    """A kind whose environment answers tool calls."""

    def environment(self) -> StepEnvironment:
        """A fresh environment for one attempt."""
        ...


class HarnessKind(TaskSource, Protocol):
    """A kind that brings its own agent."""

    def harness(self) -> Harness:
        """The harness, which serves all attempts."""
        ...


class KindEntry(msgspec.Struct, frozen=True):
    """A kind in `KINDS`: how it is written, what it is, and the import path of its factory."""

    usage: str
    help: str
    factory: str


KINDS: dict[str, KindEntry] = {
    "sums": KindEntry(
        "sums",
        "add two numbers, larger than the tiny policy can add, with a tool, and say the result",
        "openclaw_rl.environments.families.kinds:sums_kind",
    ),
    "calls": KindEntry(
        "calls",
        "make the one right call among the tools offered, some of them made up for the task",
        "openclaw_rl.environments.families.kinds:calls_kind",
    ),
    "mcp": KindEntry(
        "mcp:COMMAND or mcp:URL",
        "tools of an MCP server, one process or session for each attempt; tasks from --tasks",
        "openclaw_rl.environments.tools.kinds:mcp_kind",
    ),
    "mcp-shared": KindEntry(
        "mcp-shared:COMMAND",
        "the same with one process for all attempts, for servers without state",
        "openclaw_rl.environments.tools.kinds:mcp_shared_kind",
    ),
    "python": KindEntry(
        "python or python+KIND",
        "a Python interpreter in a sandbox, alone or next to the tools of mcp, mcp-shared or tools; tasks from --tasks",
        "openclaw_rl.environments.tools.kinds:python_kind",
    ),
    "tools": KindEntry(
        "tools:FILE.json",
        "tools that a file describes (tools_config.json); tasks from --tasks",
        "openclaw_rl.environments.tools.kinds:functions_kind",
    ),
    "terminal": KindEntry(
        "terminal or terminal:hand-written",
        "small tasks for a shell, drawn without end, or ten written by hand",
        "openclaw_rl.environments.tasks.kinds:harbor_tasks",
    ),
    "swe": KindEntry(
        "swe or swe:repositories",
        "modules of one file with a fault, drawn without end, or small repositories with one each",
        "openclaw_rl.environments.tasks.kinds:harbor_tasks",
    ),
    "harbor": KindEntry(
        "harbor:FOLDER",
        "a task, or a folder of tasks, in Harbor's layout or Terminal-Bench's; any agent, in a sandbox",
        "openclaw_rl.environments.harbor.kind:harbor_kind",
    ),
}
OWN = KindEntry("./FILE.py or MODULE:FUNCTION", f"an environment of your own ({PAGE})", "")

NAMES = {"toolcall": "tools", "tool-call": "tools"}
"""Other names of kinds, from guides of other systems."""
NOT_YET = ("gui",)
_VALUE = re.compile(r"""\w=["']?([^\s&"']{8,})""")
"""A value in a command or an address, long enough for a key."""


def create_kind(spec: str, options: KindOptions) -> TaskSource:
    """The kind that `spec` means. Raises `ConfigError` for one that is none, or misses something."""
    word, colon, rest = spec.partition(":")
    word = NAMES.get(word, word)
    if entry := KINDS.get("python" if word.startswith("python+") else word):
        return checked_kind(resolve(entry.factory)(f"{word}{colon}{rest}", options), spec)
    if is_hook(spec):
        return checked_kind(resolve(spec, default="create")(spec, options), spec)
    if word in NOT_YET:
        raise ConfigError(f"this version has no environment {word!r}; a harness of your own can bring it: {PAGE}")
    known = ", ".join([*(entry.usage for entry in KINDS.values()), OWN.usage])
    raise ConfigError(f"there is no environment {spec!r}; choose one of {known}")


def hide_values(text: str, spec: str) -> str:
    """The text without the values in `spec` (`mcp:env KEY=… server`, `mcp:https://…?key=…`): they may be keys, and what
    the text is kept in (folders, logs, the journal) is read by others.
    """
    for value in _VALUE.findall(spec):
        text = text.replace(value, "…")
    return text


def checked_kind(kind: Any, spec: str) -> TaskSource:
    """The result of a factory. Raises `ConfigError` if it is no kind."""
    name = type(kind).__name__
    if not callable(getattr(kind, "tasks", None)):
        hint = "; it is an environment: return a kind whose environment() returns it" if hasattr(kind, "reset") else ""
        raise ConfigError(f"{spec}: create() returned {name}, which has no tasks(split, seed){hint} ({PAGE})")
    parts = [part for part in ("environment", "harness") if callable(getattr(kind, part, None))]
    if len(parts) != 1:
        has = "both environment() and harness()" if parts else "neither environment() nor harness()"
        raise ConfigError(f"{spec}: create() returned {name}, which has {has}; it has one of them ({PAGE})")
    return kind  # type: ignore[no-any-return]


def harness_of(kind: Any, *, seed: int, max_steps: int) -> Harness:
    """The kind's own harness, or our tool loop over its environment."""
    if hasattr(kind, "harness"):
        return kind.harness()  # type: ignore[no-any-return]
    return ToolLoop(kind.environment, seed=seed, max_steps=max_steps)


def take_tasks(kind: TaskSource, split: Split, seed: int, count: int) -> list[Task]:
    """The first `count` tasks of a split; if there are fewer, they come again.

    Raises `ConfigError` if there is none, for something that is no task, and for two tasks of one id.
    """
    found = list(islice(_tasks(kind, split, seed), count))
    if not found:
        raise ConfigError(f"{type(kind).__name__}.tasks({split!r}, {seed}) gave no task")
    known: dict[str, Task] = {}
    for task in found:
        if not isinstance(task, Task):
            raise ConfigError(
                f"{type(kind).__name__}.tasks() gave {type(task).__name__}; a task is a Task(id=…, prompt=…)"
            )
        if known.setdefault(task.id, task) != task:
            raise ConfigError(
                f"two different tasks of {type(kind).__name__} have the id {task.id!r}; give each its own"
            )
    return [found[number % len(found)] for number in range(count)]


def _tasks(kind: TaskSource, split: Split, seed: int) -> Iterable[Any]:
    found: Any = kind.tasks(split, seed)
    if not hasattr(found, "__iter__"):
        raise ConfigError(f"{type(kind).__name__}.tasks() gave {type(found).__name__}; it gives an iterator of tasks")
    return found  # type: ignore[no-any-return]


def check_apart(train: Iterable[Task], held_out: Iterable[Task]) -> None:
    """Raise `ConfigError` if a held-out task is a training task too: a gain on it proves nothing."""
    if both := {task.id for task in train} & {task.id for task in held_out}:
        raise ConfigError(
            f"task {min(both)!r} is both a training and a held-out task; tasks('train', …) and tasks('held-out', …) "
            f"give different ones ({PAGE})"
        )


async def close_kind(kind: object) -> None:
    """End what the kind's attempts share, if it has anything."""
    if hasattr(kind, "close"):
        await kind.close()
