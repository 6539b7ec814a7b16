"""The trainer contract on the real Megatron-core, on a CPU: one process, and two that share layers or the batch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.contract import test_trainer as contract
from tests.contract.test_trainer import Make, Subject
from tests.trainer_local.tiny import settings, write_policy

pytest.importorskip("megatron.core", reason="test_megatron.py runs this where Megatron-core is")

from openclaw_rl.trainer_local.megatron.trainer import MegatronTrainer, create

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200)]

LAYOUTS = {
    "lora": {"lora": True},
    "full": {"lora": False},
    "lora-tensor-parallel": {"lora": True, "tensor_parallel": 2},
    "full-tensor-parallel": {"lora": False, "tensor_parallel": 2},
    "lora-data-parallel": {"lora": True, "actor_gpus": "2"},
    "full-data-parallel": {"lora": False, "actor_gpus": "2"},
}

globals().update({name: test for name, test in vars(contract).items() if name.startswith("test_")})
distils = contract.distils


@pytest.fixture
def subject() -> Subject:
    return Subject()


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_policy(tmp_path_factory.mktemp("policy"))


@pytest.fixture(scope="module", params=list(LAYOUTS))
def layout(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def processes(layout: str, policy: Path) -> Iterator[None]:
    """A trainer that keeps the processes of a layout from ending with each test: they take seconds to start."""
    keeper = create(settings(policy, **LAYOUTS[layout]))
    yield
    asyncio.run(keeper.close())


@pytest.fixture
async def make(processes: None, layout: str, policy: Path) -> AsyncIterator[Make]:
    """Makes trainers on the same settings. They share their processes."""
    made: list[MegatronTrainer] = []

    def build() -> MegatronTrainer:
        made.append(create(settings(policy, **LAYOUTS[layout])))
        return made[-1]

    yield build
    for trainer in made:
        await trainer.close()
