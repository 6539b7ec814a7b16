"""`response_format`: passed to an engine that can hold answers to a schema, refused for one that cannot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from openclaw_rl.shared.engine.protocol import EngineInfo
from tests.processes import Proxy
from tests.proxy.scripted_engine import ScriptedEngine, scripted_service

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
FORM: dict[str, Any] = {"type": "json_schema", "json_schema": {"name": "sum", "schema": SCHEMA, "strict": True}}
QUESTION = [{"role": "user", "content": "Two and two, as JSON."}]
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}


@pytest.mark.parametrize("form", [FORM, {"type": "json_object"}])
def test_an_engine_that_cannot_constrain_is_not_asked_to(service: Proxy, form: dict[str, Any]) -> None:
    refused = service.chat(QUESTION, response_format=form)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "response_format")
    assert "cannot hold answers to a schema" in refused.json()["error"]["message"]
    assert service.chat(QUESTION, response_format={"type": "text"}).status_code == 200


def test_half_an_emoji_in_a_schema_is_no_obstacle(service: Proxy) -> None:
    schema = {"type": "object", "title": "\ud83d"}
    form = {"type": "json_schema", "json_schema": {"name": "sum", "schema": schema}}
    sent = json.dumps({"model": "policy", "messages": QUESTION, "response_format": form})
    with service.client() as client:
        refused = client.post("/v1/chat/completions", content=sent)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "response_format")


async def test_a_scripted_engine_that_can_is_given_the_schema(
    policy_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    generate, info = ScriptedEngine.generate, ScriptedEngine.info

    def constrained(self: ScriptedEngine, prompt: Any, sampling: Any, **rest: Any) -> Any:
        asked.append(sampling.json_schema)
        return generate(self, prompt, sampling, **rest)

    async def able(self: ScriptedEngine) -> EngineInfo:
        return msgspec.structs.replace(await info(self), constrains=True)

    monkeypatch.setattr(ScriptedEngine, "generate", constrained)
    monkeypatch.setattr(ScriptedEngine, "info", able)
    async with scripted_service(policy_folder, tmp_path, '{"sum": 4}') as (client, service, _):
        await service.watch.refresh()

        async def chat(**body: Any) -> Any:
            return await client.post("/v1/chat/completions", json={"model": "policy", "messages": QUESTION, **body})

        answered = await chat(response_format=FORM)
        assert answered.json()["choices"][0]["message"]["content"] == '{"sum": 4}'
        assert [msgspec.json.decode(schema) for schema in asked] == [SCHEMA]
        turn = await service.journal.turn(answered.headers["x-openclaw-rl-turn"])
        assert turn is not None and "response_format" in turn.untrainable
        for wrong in (
            {"response_format": FORM, "tools": [TOOL]},
            {"response_format": FORM, "chat_template_kwargs": {"enable_thinking": True}},
            {"response_format": {"type": "json_schema", "json_schema": {"name": "sum"}}},
            {"response_format": {"type": "grammar"}},
            {"response_format": "json"},
        ):
            refused = await chat(**wrong)
            assert (refused.status_code, refused.json()["error"]["param"]) == (400, "response_format")
    assert len(asked) == 1
