"""One small cell for real."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from bench.cells import code_digest
from bench.environments.cell import RUNS, EnvironmentResult

RUN = """
import asyncio, sys, msgspec
from collections import Counter
from bench.environments.cell import EnvironmentCell
from bench.environments.run import run
from openclaw_rl.environments import kinds

class EveryOther:
    def __init__(self, harness):
        self.harness, self.ended = harness, Counter()

    async def run(self, task, endpoint):
        attempt = await self.harness.run(task, endpoint)
        self.ended[task.id] += 1
        return msgspec.structs.replace(attempt, reward=2.0 * (self.ended[task.id] % 2))

harness_of = kinds.harness_of
kinds.harness_of = lambda *kind, **options: EveryOther(harness_of(*kind, **options))
settings = {"model": "tiny", "method": "binary", "kl_base": 0.01, "temperature": 1.0, "learning_rate": 4e-3,
            "batch_size": 4, "step_rewards": 0.5, "guard": False}
one = EnvironmentCell(environment="sums", arm="placebo", seed=1, episodes=16, group=4, concurrency=8, max_steps=4,
                      held_out=2, problems=2, shuffled=True, settings=settings)
found = asyncio.run(run(one.with_code()))
print(*sorted(name for name in sys.modules if name.startswith(("openclaw_rl.", "bench."))))
sys.stdout.buffer.write(msgspec.json.encode(found))
"""


@pytest.mark.real
@pytest.mark.timeout(600)
def test_a_cell_runs_for_real_and_its_code_has_every_module_that_it_loads() -> None:
    """Every other attempt at a task is said to pass, so that no group is alike by chance and teaches nothing."""
    printed = subprocess.run([sys.executable, "-W", "ignore", "-c", RUN], capture_output=True, check=True).stdout
    *_, loaded, encoded = printed.splitlines()
    assert set(loaded.decode().split()) <= code_digest.modules(RUNS)
    found = msgspec.json.decode(encoded, type=EnvironmentResult)
    assert (found.before.version, found.before.judged, found.after.judged) == (0, 2, 2)
    assert (found.before.passed, found.after.passed) == (2, 0), "each held-out task is attempted twice in all"
    assert found.settled and len(found.training) == 8 and sum(found.training) == 4.0
    assert 1 <= found.after.version <= sum(found.versions.values()) and found.trained >= 4 and found.commit
