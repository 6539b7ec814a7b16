"""Kinds of environments by name: `sums`, `mcp:COMMAND`, or a file of your own (`./my_environment.py`).

A kind is an object with `tasks` and either `environment` (a `StepEnvironment`, run by our tool loop) or `harness` (an
agent of its own). A new kind is one entry in `KINDS`, or a file of your own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Protocol

import msgspec

from openclaw_rl.environments.attempt import Harness, Task
from openclaw_rl.environments.steps import StepEnvironment

Split = Literal["train", "held-out"]


class KindOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a kind. `tasks`: file or folder of tasks, "" for the kind's own. `tools_config`: file that describes
    tools, "" for none. `max_steps`: model calls of an attempt.
    """

    tasks: str = ""
    tools_config: str = ""
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
