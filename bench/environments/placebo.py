"""Attempts whose verdicts say nothing: those of each group are permuted before they are posted."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from random import Random

import msgspec

from openclaw_rl.environments.attempt import Attempt, Endpoint, EnvironmentFault, Harness, Task


class _Group:
    def __init__(self) -> None:
        self.attempts: list[Attempt] = []
        self.complete = asyncio.Event()


class ShuffledOutcomes:
    """A harness that gives each attempt the verdict of one of its group, chosen by chance; itself not excepted, so that
    a verdict says nothing about its attempt. The group's attempts must run at the same time, and each task once.

    A failure of the environment ends its whole group without verdicts.
    """

    def __init__(self, harness: Harness, *, group: int, seed: int) -> None:
        self._harness = harness
        self._group = group
        self._seed = seed
        self._groups: defaultdict[str, _Group] = defaultdict(_Group)

    async def run(self, task: Task, endpoint: Endpoint) -> Attempt:
        """One attempt; returns when all attempts of the group have ended."""
        group = self._groups[task.id]
        try:
            attempt = await self._harness.run(task, endpoint)
        except EnvironmentFault as error:
            attempt = Attempt(reward=None, detail={"error": str(error)})
        place = len(group.attempts)
        group.attempts.append(attempt)
        if len(group.attempts) == self._group:
            group.complete.set()
        await group.complete.wait()
        if any(one.reward is None for one in group.attempts):
            return msgspec.structs.replace(attempt, reward=None)
        order = Random(f"{self._seed} {task.id}").sample(range(self._group), self._group)
        other = group.attempts[order[place]]
        return msgspec.structs.replace(attempt, reward=other.reward, detail=other.detail, next_state=other.next_state)
