"""A step on Megatron-core that is stopped because the GPU is needed: on one process and on two."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import torch

from openclaw_rl.shared.errors import TrainerError
from openclaw_rl.shared.trainer import Recipe
from tests.trainer_local.tiny import sample, settings, write_policy

pytest.importorskip("megatron.core", reason="test_megatron.py runs this where Megatron-core is")

from openclaw_rl.trainer_local.megatron.trainer import MegatronTrainer
from tests.real.megatron_trainers import LAYOUTS

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200)]

BATCH = [sample(1), sample(2, hints=0, reward=1.0, explicit=True), sample(3), sample(4)]
ENDLESS = Recipe(epochs=100_000, learning_rate=1e-3)
SHORT = Recipe(epochs=2, learning_rate=1e-2)


@pytest.fixture(params=LAYOUTS.values(), ids=LAYOUTS)
async def trainer(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[MegatronTrainer]:
    made = MegatronTrainer(settings(write_policy(tmp_path / "policy"), **request.param))
    yield made
    await made.close()


async def exported(trainer: MegatronTrainer, folder: Path) -> dict[str, torch.Tensor]:
    checkpoint = await trainer.save(str(folder))
    state: dict[str, torch.Tensor] = torch.load(Path(checkpoint.path) / "trainer.pt", weights_only=True)["weights"]
    return state


async def test_a_step_ends_soon_after_it_is_asked_to_and_leaves_nothing(
    trainer: MegatronTrainer, tmp_path: Path
) -> None:
    before = await exported(trainer, tmp_path / "before")
    stop = asyncio.Event()
    step = asyncio.create_task(trainer.step(BATCH, ENDLESS, stop=stop))
    await asyncio.wait([step], timeout=1.0)
    assert not step.done()
    stop.set()
    with pytest.raises(TrainerError):
        await asyncio.wait_for(step, 60)
    await trainer.free()
    stopped = await exported(trainer, tmp_path / "stopped")
    assert all(torch.equal(part, before[name]) for name, part in stopped.items())
    report = await trainer.step(BATCH, SHORT, stop=asyncio.Event())
    once = await exported(trainer, tmp_path / "once")
    assert report.step == 1 and not any(torch.equal(part, before[name]) for name, part in once.items() if part.any())
    await trainer.restore(None)
    await trainer.step(BATCH, SHORT)
    usual = await exported(trainer, tmp_path / "usual")
    assert all(torch.equal(part, usual[name]) for name, part in once.items())
