"""Engines in front of a provider: logprobs at temperature 1 whatever was sampled, and trouble that is not their own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from openclaw_rl.shared.engine.protocol import EngineInfo, Tokens
from tests.proxy.scripted_engine import ScriptedEngine, scripted_service


class FarEngine(ScriptedEngine):
    """Stands for the engine of a cloud backend."""

    trouble = ""

    async def generate(self, prompt_ids: Any, sampling: Any, **asked: Any) -> AsyncIterator[Tokens]:
        async for tokens in super().generate(prompt_ids, sampling, **asked):
            yield msgspec.structs.replace(tokens, unscaled=sampling.temperature != 1)

    async def info(self) -> EngineInfo:
        return msgspec.structs.replace(await super().info(), scales=False, trouble=self.trouble)


@pytest.mark.parametrize("temperature", [0.7, 1.0])
async def test_an_answer_without_a_ratio_is_recorded_as_one(
    policy_folder: Path, tmp_path: Path, temperature: float
) -> None:
    async with scripted_service(policy_folder, tmp_path, "Seven.", engine=FarEngine) as (client, service, _):
        body = {"model": "policy", "messages": [{"role": "user", "content": "3 + 4?"}], "temperature": temperature}
        answer = (await client.post("/v1/chat/completions", json=body)).json()
        explained = (await client.get(f"/rl/turns/{answer['id']}")).json()
        turn = await service.journal.turn(explained["turn"]["turn_id"])
        assert turn is not None
        assert (turn.sampling.temperature, turn.sampling.unscaled) == (temperature, temperature != 1)
        reason = "sampled at temperature 0.7 by an engine that reports its logprobs at 1" if temperature != 1 else ""
        assert explained["no_ratio"] == reason


async def test_trouble_of_the_engine_is_shown(policy_folder: Path, tmp_path: Path) -> None:
    async with scripted_service(policy_folder, tmp_path, "Seven.", engine=FarEngine) as (client, service, engine):
        assert (await client.get("/rl/status")).json()["trouble"] == ""
        engine.trouble = "the Tinker account cannot pay"  # type: ignore[attr-defined]
        await service.watch.refresh()
        assert (await client.get("/rl/status")).json()["trouble"] == "the Tinker account cannot pay"
