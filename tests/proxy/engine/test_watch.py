"""The engine as the proxy knows it: away for a moment, or too long for a request to wait."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from openclaw_rl.proxy.engine import watch as watch_module
from openclaw_rl.proxy.engine.watch import AWAY_SECONDS, EngineWatch
from openclaw_rl.shared.engine.protocol import EngineInfo
from openclaw_rl.shared.errors import EngineError
from tests.proxy.scripted_engine import ScriptedEngine, scripted_service


class FailingEngine(ScriptedEngine):
    """Answers questions about itself with `error`, or not at all while `silent`."""

    error: EngineError | None = None
    silent = False

    async def info(self) -> EngineInfo:
        if self.silent:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        return await super().info()


class Clock:
    """A clock that stands still."""

    def __init__(self) -> None:
        self.now = time.monotonic()

    def __call__(self) -> float:
        return self.now


async def test_a_scripted_engine_is_away_once_it_has_been_silent_or_out_of_reach_for_long(
    policy_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_module, "ANSWER_SECONDS", 0.01)
    clock = Clock()
    async with scripted_service(policy_folder, tmp_path, "yes", engine=FailingEngine) as (_, service, engine):
        watch = EngineWatch(service.engine, silent_seconds=100.0, clock=clock)
        assert isinstance(engine, FailingEngine)
        assert not watch.away, "it may be starting"
        engine.error = EngineError("gone")
        await watch.refresh()
        clock.now += AWAY_SECONDS - 1
        assert watch.error == "gone" and not watch.away
        clock.now += 2
        assert watch.away == "gone"
        engine.error = None
        await watch.refresh()
        assert watch.ready and not watch.away
        engine.silent = True
        await watch.refresh()
        clock.now += 99
        assert watch.error and not watch.away, "it may be busy"
        clock.now += 2
        assert watch.away == watch.error


async def test_a_new_chat_fails_at_once_with_the_reason_while_the_scripted_engine_is_away(
    policy_folder: Path, tmp_path: Path
) -> None:
    body = {"model": "policy", "messages": [{"role": "user", "content": "hello"}]}
    async with scripted_service(policy_folder, tmp_path, "yes", engine=FailingEngine) as (client, service, engine):
        assert isinstance(engine, FailingEngine)
        clock = service.watch._clock = Clock()
        engine.error = EngineError("the graphics card is gone")
        await service.watch.refresh()
        assert (await client.post("/v1/chat/completions", json=body)).status_code == 200, "a restart takes seconds"
        clock.now += 1000
        refused = await client.post("/v1/chat/completions", json=body)
        assert refused.status_code == 503 and int(refused.headers["retry-after"]) > 0
        assert "the graphics card is gone" in refused.json()["error"]["message"]
        engine.error = None
        await service.watch.refresh()
        assert (await client.post("/v1/chat/completions", json=body)).status_code == 200
