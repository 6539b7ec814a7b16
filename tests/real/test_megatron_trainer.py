"""The trainer contract on the real Megatron-core, on a CPU: one process, and two that share layers or the batch."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract import test_trainer as contract
from tests.contract.test_trainer import Make, Subject
from tests.trainer_local.tiny import settings, write_policy

pytest.importorskip("megatron.core", reason="test_megatron.py runs this where Megatron-core is")

from openclaw_rl.trainer_local.megatron.trainer import MegatronTrainer, create
from tests.real.megatron_trainers import LAYOUTS

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200)]

CASES = {
    f"{kind}-{layout}": {"lora": kind == "lora", **changes}
    for layout, changes in LAYOUTS.items()
    for kind in ("lora", "full")
}

globals().update({name: test for name, test in vars(contract).items() if name.startswith("test_")})
distils = contract.distils


@pytest.fixture
def subject() -> Subject:
    return Subject()


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_policy(tmp_path_factory.mktemp("policy"))


@pytest.fixture(params=list(CASES))
async def make(request: pytest.FixtureRequest, policy: Path) -> AsyncIterator[Make]:
    """Makes trainers on the same settings. They share their processes."""
    made: list[MegatronTrainer] = []

    def build() -> MegatronTrainer:
        made.append(create(settings(policy, **CASES[request.param])))
        return made[-1]

    yield build
    for trainer in made:
        await trainer.close()
