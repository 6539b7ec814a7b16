"""The tasks of the built-in families. The name of a task (`sums/held-out/3/17`: family, split, seed, number) says all
about it, so that the server of the tools makes the same task from it as the runner does.
"""

from __future__ import annotations

import tomllib
import zlib
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, cast, get_args

import msgspec

from openclaw_rl.environments.attempt import Task
from openclaw_rl.environments.kinds import Split
from openclaw_rl.environments.tools.checks import MadeCall

WORDS: dict[str, Any] = tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))
_HELD_OUT = 4
"""One in so many combinations is held out."""


class FamilyTask(msgspec.Struct, frozen=True, kw_only=True):
    """A request, the tools offered (OpenAI's schema), the one right call, the value of the tool when it is called with
    some arguments (raises `ValueError` with the error's text), and the number that the last answer has to end with, if
    any.
    """

    request: str
    tools: list[dict[str, Any]]
    call: MadeCall
    value: Callable[[dict[str, Any]], str]
    answer: float | None = None


class TaskFamily:
    """Tasks without end, each drawn by itself from the random numbers of its name (`environments.kinds.TaskSource`)."""

    def __init__(self, name: str, draw: Callable[[Random, Split], FamilyTask]) -> None:
        self.name = name
        self._draw = draw

    def tasks(self, split: Split, seed: int) -> Iterator[Task]:
        """The tasks of a split; the same seed gives the same ones."""
        for number in count():
            name = f"{self.name}/{split}/{seed}/{number}"
            drawn = self.task(name)
            data: dict[str, Any] = {"expect": [msgspec.to_builtins(drawn.call)]}
            if drawn.answer is not None:
                data["answer"] = drawn.answer
            yield Task(id=name, prompt=drawn.request, data=data)

    def task(self, name: str) -> FamilyTask:
        """The task of a name. Raises `ValueError` for a name that is none of ours."""
        family, _, rest = name.partition("/")
        split = rest.partition("/")[0]
        if family != self.name or split not in get_args(Split):
            raise ValueError(f"{name!r} is no task of {self.name}")
        return self._draw(Random(name), cast(Split, split))


def split_of(*combination: object) -> Split:
    """The split of a task, by the combination of values that makes it: about a quarter of all are held out."""
    digest = zlib.crc32(" ".join(map(str, combination)).encode())
    return "held-out" if digest % _HELD_OUT == 0 else "train"


def definition(name: str, description: str, properties: dict[str, Any]) -> dict[str, Any]:
    """A tool in OpenAI's schema; all `properties` (JSON schemas by name) are required."""
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}
