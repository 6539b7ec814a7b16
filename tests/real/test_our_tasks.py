"""Our tasks, run by Harbor in our sandbox: the reference solution passes, and an agent that does nothing fails."""

from __future__ import annotations

import pytest

from openclaw_rl.environments.attempt import Attempt, Endpoint
from openclaw_rl.environments.kinds import KindOptions, Split, close_kind, take_tasks
from openclaw_rl.environments.tasks.kinds import HAND_WRITTEN, REPOSITORIES, harbor_tasks
from openclaw_rl.shared.gather import gather
from tests.rigs.environments import MADE, environment

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]
NO_SERVICE = Endpoint(base_url="http://127.0.0.1:9/v1", api_key="none", session_id="none", model="policy")


@pytest.mark.parametrize(
    ("spec", "split", "count"), [(HAND_WRITTEN, "held-out", 10), (REPOSITORIES, "train", 4), ("terminal", "train", 4)]
)
async def test_the_oracle_passes_and_no_work_fails(
    spec: str, split: Split, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment("harbor")  # skips where it is not there
    monkeypatch.setenv("OPENCLAW_RL_CACHE", str(MADE))
    for agent, reward in (("oracle", 1.0), ("nop", 0.0)):
        kind = harbor_tasks(spec, KindOptions(agent=agent))
        try:
            harness = kind.harness()
            tasks = take_tasks(kind, split, 0, count)
            attempts: list[Attempt] = []
            for start in range(0, count, 4):
                attempts += await gather(*(harness.run(task, NO_SERVICE) for task in tasks[start : start + 4]))
        finally:
            await close_kind(kind)
        found = {task.id: attempt.reward for task, attempt in zip(tasks, attempts, strict=True)}
        assert found == dict.fromkeys(found, reward), [attempt.next_state for attempt in attempts]
