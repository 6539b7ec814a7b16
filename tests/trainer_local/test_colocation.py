"""Steps that are made in memory that SGLang lends. The engine is a fake one: a CPU has nothing to lend, and that the
real SGLang lends and takes back is in `tests/real/test_sglang_whole.py`.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
import torch

from openclaw_rl.shared.errors import EngineError, TrainerAway, TrainerError
from openclaw_rl.shared.gpus import GIB, Gpu
from openclaw_rl.shared.placement import Placement, Server
from openclaw_rl.shared.trainer import Recipe
from openclaw_rl.trainer_local import backend, colocation
from openclaw_rl.trainer_local.colocation import AlternatingTrainer
from openclaw_rl.trainer_local.transformers_trainer import TransformersTrainer, create
from tests.trainer_local.tiny import sample, settings, write_policy

RECIPE = Recipe(epochs=3, learning_rate=1e-2)
BATCH = [sample(1), sample(2), sample(3, hints=0, reward=1.0, explicit=True)]


class FakeLender:
    """Lends each time as `lends` says, at last always; what is `busy` comes first."""

    def __init__(self, *lends: bool, busy: Sequence[bool | EngineError] = ()) -> None:
        self.lends, self.busy_then = list(lends), list(busy)
        self.asked = 0
        self.failed: list[str] = []

    @contextlib.asynccontextmanager
    async def lend_memory(self) -> AsyncIterator[bool]:
        self.asked += 1
        try:
            yield self.lends.pop(0) if self.lends else True
        except BaseException as error:
            self.failed.append(type(error).__name__)
            raise

    async def busy(self) -> bool:
        found = self.busy_then.pop(0) if self.busy_then else False
        if isinstance(found, EngineError):
            raise found
        return found

    async def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(colocation, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(colocation, "_LOOK_SECONDS", 0.0)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_policy(tmp_path_factory.mktemp("policy"))


def weights(trainer: TransformersTrainer) -> list[torch.Tensor]:
    return [part.detach().clone() for part in trainer._weights.masters.values()]


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(torch.equal(left, right) for left, right in zip(one, other, strict=True))


async def test_a_step_waits_until_a_fake_engine_lends(policy: Path) -> None:
    lender = FakeLender(False, False, busy=[True, True, False])
    trainer, other = create(settings(policy)), create(settings(policy))
    report = await AlternatingTrainer(trainer, lender).step(BATCH, RECIPE)
    await other.step(BATCH, RECIPE)
    assert report.step == 1 and same(weights(trainer), weights(other))
    assert lender.asked == 3 and not lender.failed
    await trainer.close()
    await other.close()


async def test_a_step_waits_for_a_pause_that_is_long_enough(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(colocation, "QUIET_SECONDS", 0.05)
    lender = FakeLender(busy=[False, False, True, False])
    trainer = create(settings(policy))
    await AlternatingTrainer(trainer, lender).step(BATCH, RECIPE)
    assert not lender.busy_then and lender.asked == 1
    await trainer.close()


async def test_a_step_that_was_made_counts_though_a_fake_engine_does_not_take_its_memory(policy: Path) -> None:
    class Failing(FakeLender):
        @contextlib.asynccontextmanager
        async def lend_memory(self) -> AsyncIterator[bool]:
            yield True
            raise EngineError("no memory left")

    trainer = create(settings(policy))
    assert (await AlternatingTrainer(trainer, Failing()).step(BATCH, RECIPE)).step == 1
    await trainer.close()


async def test_a_failure_of_a_step_is_raised_once_a_fake_engine_has_its_memory(policy: Path) -> None:
    trainer, lender = create(settings(policy)), FakeLender()
    bad = [sample(1, response_ids=[10**6] * 4)]
    with pytest.raises(TrainerError, match="was undone"):
        await AlternatingTrainer(trainer, lender).step(bad, RECIPE)
    assert lender.failed == [], "the memory went back in the usual way"
    await trainer.close()


async def test_the_batch_waits_for_a_fake_engine_that_is_never_quiet(
    policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(colocation, "WAIT_SECONDS", 0.2)
    trainer = create(settings(policy))
    busy = AlternatingTrainer(trainer, FakeLender(busy=[True] * 10**5))
    assert "waits for a pause" in await busy.obstacle()
    with pytest.raises(TrainerAway, match="needs a second GPU"):
        await busy.step(BATCH, RECIPE)
    gone = AlternatingTrainer(trainer, FakeLender(busy=[EngineError("refused")] * 2))
    assert "does not answer: refused" in await gone.obstacle()
    with pytest.raises(TrainerAway, match="that failed: refused"):
        await gone.step(BATCH, RECIPE)
    assert await AlternatingTrainer(trainer, FakeLender()).obstacle() == ""
    await trainer.close()


async def test_a_trainer_whose_ranks_are_gone_is_asked_for_its_obstacle_before_anything_else(policy: Path) -> None:
    """Megatron-core's starts them again then."""

    class Mends(TransformersTrainer):
        gone = True

        async def obstacle(self) -> str:
            self.gone = False
            return await super().obstacle()

        async def free(self) -> None:
            if self.gone:
                raise TrainerError("a rank is gone")
            await super().free()

    trainer = Mends(settings(policy))
    assert await AlternatingTrainer(trainer, FakeLender()).obstacle() == ""
    await trainer.close()


async def test_the_trainer_of_a_placement_that_alternates_borrows_memory(
    policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "other"}))
    card = Gpu(number=0, handle="0", name="", memory=GIB, free=GIB)
    server = Server(role="policy", model="m", gpus=(card,), lends_memory=True)
    chosen = settings(policy, backend="embedded", engine_url="http://127.0.0.1:9")
    for train, borrows in (((card,), True), ((), False)):
        for name, value in Placement(servers=(server,), train=train, sharing="alternating").variables.items():
            monkeypatch.setenv(name, value)
        made = backend.create(chosen)
        assert isinstance(made, AlternatingTrainer) is borrows
        await made.close()
