"""A cloud engine over a stand-in, and a version that was trained there: fixtures, as a plugin of a test module."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.shared.engine.wire import GenerateRequest, SamplingParams
from openclaw_rl.shared.trainer import Recipe
from openclaw_rl.trainer_cloud.budget.budget import Budget
from openclaw_rl.trainer_cloud.engine import engine as engines
from openclaw_rl.trainer_cloud.training.trainer import CloudTrainer
from tests.trainer_cloud.torch_provider import TorchProvider
from tests.trainer_local.serving import prompt, write_model
from tests.trainer_local.tiny import sample, settings


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def provider(model: Path) -> TorchProvider:
    return TorchProvider(model)


@pytest.fixture(scope="module")
def adapter(model: Path, provider: TorchProvider, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained version."""

    async def train() -> Path:
        folder = tmp_path_factory.mktemp("trained")
        trainer = CloudTrainer(settings(model, data=folder), provider)
        await trainer.step(
            [sample(1, hints=0, reward=1.0)], Recipe(distillation="none", rewards="all", epochs=4, learning_rate=1e-2)
        )
        return Path((await trainer.save(str(folder / "checkpoints" / "1"))).served)

    return asyncio.run(train())


@pytest.fixture
async def alone(model: Path, tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[Any]]]:
    """Makes an engine with a provider of its own, both in this process's loop."""
    made: list[engines.CloudEngine] = []

    async def build(**changes: Any) -> tuple[TorchProvider, engines.CloudEngine]:
        chosen = settings(model, data=tmp_path, **changes)
        provider = TorchProvider(model)
        made.append(engines.CloudEngine(provider, chosen, Budget(chosen, "torch", str(model))))
        made[-1].start(asyncio.get_running_loop())
        return provider, made[-1]

    yield build
    for one in made:
        await one.close()


async def ask(
    engine: engines.CloudEngine,
    *,
    priority: int = 0,
    tokens: int = 4,
    version: int | None = None,
    top_logprobs: int = 0,
    score_from: int | None = None,
) -> Any:
    """The last event of one request."""
    last = asyncio.get_running_loop().create_future()
    request = GenerateRequest(
        input_ids=prompt(5),
        sampling_params=SamplingParams(max_new_tokens=tokens, ignore_eos=True),
        priority=priority,
        weight_version=version,
        return_logprob=bool(top_logprobs) or score_from is not None,
        logprob_start_len=score_from,
        top_logprobs_num=top_logprobs,
    )
    await engine.submit(request, lambda event: last.set_result(event) if event.last and not last.done() else None)
    return await last
