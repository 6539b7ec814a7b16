"""The cloud engine when its provider, a stand-in, does not have the weights of a version any more. At a real
server: `tests/real/test_tinker_engine.py`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.shared.engine.wire import Refused, UpdateWeights
from openclaw_rl.trainer_cloud.engine import engine as engines
from openclaw_rl.trainer_cloud.engine import versions
from openclaw_rl.trainer_cloud.provider import CloudError
from tests.trainer_cloud.engine_fixtures import ask
from tests.trainer_cloud.torch_provider import TorchProvider

pytest_plugins = ("tests.trainer_cloud.engine_fixtures",)


async def served_and_lost(
    alone: Callable[..., Awaitable[Any]], adapter: Path, provider: TorchProvider
) -> tuple[TorchProvider, engines.CloudEngine, str]:
    """An engine whose live version 7 was removed at its provider, which says so only when it is sampled from."""
    own, engine = await alone()
    own.kept, own.lazy = dict(provider.kept), True
    await engine.load(UpdateWeights(str(adapter), 7, live=True))
    assert (await ask(engine)).error is None
    path = engine.versions.find(7).path
    del own.kept[path]
    return own, engine, path


async def test_chat_continues_with_the_base_when_the_live_weights_are_gone(
    alone: Callable[..., Awaitable[Any]], adapter: Path, provider: TorchProvider
) -> None:
    _, engine, path = await served_and_lost(alone, adapter, provider)
    answers = await asyncio.gather(*(ask(engine) for _ in range(4)))
    assert all(answer.error is None for answer in answers)
    info = engine.info()
    assert info["live"] == 0 and 7 not in info["versions"]
    for message in (info["live_error"], info["trouble"]):
        assert "version 7" in message and path in message and "openclaw-rl rollback N" in message
    assert (await ask(engine)).error is None and engine.info()["trouble"] == info["trouble"]
    named = (await ask(engine, version=7)).error
    assert named.status == 404 and "version 7" in named.message and path in named.message


async def test_weights_that_are_gone_are_refused_cheaply_until_they_are_there_again(
    alone: Callable[..., Awaitable[Any]], adapter: Path, provider: TorchProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, engine, path = await served_and_lost(alone, adapter, provider)
    await ask(engine)
    asked = own.samplers
    for _ in range(3):
        with pytest.raises(Refused, match=path) as caught:
            await engine.load(UpdateWeights(str(adapter), 7, live=True))
        assert caught.value.status == 400
        await ask(engine, version=7)
    assert own.samplers == asked and path in engine.info()["trouble"]
    monkeypatch.setattr(versions, "LOST_SECONDS", 0.0)
    with pytest.raises(Refused, match=path):  # the client can be made; what it samples from is not there
        await engine.load(UpdateWeights(str(adapter), 7, live=True))
    assert own.samplers > asked and engine.info()["live"] == 0 and path in engine.info()["trouble"]
    own.kept = dict(provider.kept)
    await engine.load(UpdateWeights(str(adapter), 7, live=True))
    assert (engine.info()["live"], engine.info()["live_error"], engine.info()["trouble"]) == (7, "", "")
    assert (await ask(engine, version=7)).error is None


async def test_another_version_ends_the_trouble_with_one_that_is_gone(
    alone: Callable[..., Awaitable[Any]], adapter: Path, provider: TorchProvider, model: Path
) -> None:
    _, engine, _ = await served_and_lost(alone, adapter, provider)
    await ask(engine)
    await engine.load(UpdateWeights(str(model), 0, live=True))
    assert (engine.info()["live_error"], engine.info()["trouble"]) == ("", "")


async def test_a_client_whose_session_ended_is_no_version_that_is_gone(
    alone: Callable[..., Awaitable[Any]], adapter: Path, provider: TorchProvider
) -> None:
    own, engine = await alone()
    own.kept = dict(provider.kept)
    await engine.load(UpdateWeights(str(adapter), 7, live=True))
    own.failures["sample"] = deque([CloudError("its sampler is not found", "gone", undone=True)])
    assert (await ask(engine)).error is None
    assert (engine.info()["live"], engine.info()["trouble"]) == (7, "")
