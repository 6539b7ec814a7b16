"""An environment of the tests: a question, and a reward that differs between answers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

from openclaw_rl.environments.attempt import Task
from openclaw_rl.environments.kinds import KindOptions, Split
from openclaw_rl.environments.steps import Observation, Verdict


class Parity:
    async def reset(self, task: Task, seed: int) -> Observation:
        return Observation()

    async def tools(self) -> list[dict[str, Any]]:
        return []

    async def call(self, name: str, arguments: dict[str, Any]) -> Observation:
        raise AssertionError("there are no tools")

    async def evaluate(self, answer: str) -> Verdict:
        return Verdict(reward=float(len(answer) % 2), next_state=f"{len(answer)} characters")

    async def close(self) -> None: ...


def question(apples: int) -> str:
    return f"Tom has {apples} apples and buys 4 more. How many apples does he have?"


class Questions:
    environment = Parity

    def tasks(self, split: Split, seed: int) -> Iterator[Task]:
        first = 10 if split == "train" else 40
        return (Task(id=f"{split}-{number}", prompt=question(first + number % 30)) for number in count())


def create(spec: str, options: KindOptions) -> Questions:
    return Questions()
