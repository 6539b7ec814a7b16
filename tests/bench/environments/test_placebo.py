"""Outcomes that are permuted within their group."""

from __future__ import annotations

import asyncio

from bench.environments.placebo import ShuffledOutcomes
from openclaw_rl.environments.attempt import Attempt, Endpoint, EnvironmentFault, Task

GROUP = 8


class Numbered:
    """An agent whose attempts are rewarded with their number; one number fails."""

    def __init__(self, failing: str = "") -> None:
        self._failing = failing

    async def run(self, task: Task, endpoint: Endpoint) -> Attempt:
        if endpoint.session_id == self._failing:
            raise EnvironmentFault("the tools ended")
        number = int(endpoint.session_id)
        return Attempt(reward=float(number), steps=number, next_state=f"reward {number}")


async def attempts(harness: ShuffledOutcomes, task: str) -> list[Attempt]:
    endpoints = [
        Endpoint(base_url="http://x/v1", api_key="k", session_id=str(number), model="policy") for number in range(GROUP)
    ]
    return await asyncio.gather(*(harness.run(Task(id=task), endpoint) for endpoint in endpoints))


async def test_each_group_keeps_its_outcomes_and_each_attempt_gets_one_by_chance() -> None:
    harness = ShuffledOutcomes(Numbered(), group=GROUP, seed=1)
    found = [await attempts(harness, f"task {number}") for number in range(60)]
    for group in found:
        assert sorted(attempt.reward or 0.0 for attempt in group) == [float(number) for number in range(GROUP)]
        assert [attempt.steps for attempt in group] == list(range(GROUP))
        assert all(attempt.next_state == f"reward {attempt.reward:.0f}" for attempt in group)
    own = sum(attempt.reward == attempt.steps for group in found for attempt in group)
    assert 30 <= own <= 90, "about one in eight, 60 of 480"


async def test_a_fault_leaves_its_group_without_a_verdict() -> None:
    found = await attempts(ShuffledOutcomes(Numbered(failing="3"), group=GROUP, seed=1), "task")
    assert [attempt.reward for attempt in found] == [None] * GROUP
