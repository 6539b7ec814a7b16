"""Side turns and the fallback: another model answers, the client gets an answer, and the operator sees why.

The other model is a scripted OpenAI-compatible server; LiteLLM, which asks it, is the real one.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx
import pytest

from openclaw_rl.proxy.chat.fallback_models import OtherModel, OtherModelFailed, OtherRole
from openclaw_rl.proxy.chat.request import ChatRequest
from openclaw_rl.proxy.dialects.process import AdapterProcess
from openclaw_rl.shared.engine.protocol import EngineInfo, Tokens
from openclaw_rl.shared.errors import EngineError
from tests.processes import Engine, Proxy, run_proxy
from tests.proxy.engine_switch import Wire, run_wire
from tests.proxy.other_server import KEY, TEXT, OtherServer, run_other_server
from tests.proxy.scripted_engine import ScriptedEngine, scripted_service

CHAT = "/v1/chat/completions"
ANSWER = "".join(TEXT)
SIDE = {"x-turn-type": "side"}
CREDIT = "x-openclaw-rl-answered-by"
TOOL = {
    "type": "function",
    "function": {"name": "read_file", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}},
}


@pytest.fixture(scope="module")
def other() -> Iterator[OtherServer]:
    with run_other_server() as server:
        yield server


@pytest.fixture(autouse=True)
def reset_server(other: OtherServer) -> None:
    """Each test begins with a server that answers and was asked nothing."""
    other.mode = "text"
    other.requests.clear()
    other.headers.clear()


@pytest.fixture(scope="module")
def wire(engine_server: Engine) -> Iterator[Wire]:
    """The connection to the engine."""
    with run_wire(engine_server.port) as found:
        yield found


@pytest.fixture(scope="module")
def routed(
    other: OtherServer, wire: Wire, engine_server: Engine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Proxy]:
    """A proxy whose side turns go to the other model, and everything else while its engine is away."""
    settings = {"side_model": f"openai/small@{other.url}", "fallback_model": f"openai/big@{other.url}"}
    settings |= {"model_keys": f"side={KEY}, fallback={KEY}"}
    behind = dataclasses.replace(engine_server, url=wire.url)
    with run_proxy(behind, tmp_path_factory.mktemp("routed"), measured=True, **settings) as proxy:
        until_engine(proxy, ready=True)
        yield proxy


@pytest.fixture
def away(routed: Proxy, wire: Wire) -> Iterator[None]:
    """The engine is away, and the proxy knows."""
    wire.cut()
    until_engine(routed, ready=False)
    yield
    wire.mend()
    until_engine(routed, ready=True)


def until_engine(proxy: Proxy, *, ready: bool) -> None:
    deadline = time.monotonic() + 30.0
    with proxy.client() as client:
        while (client.get("/readyz").json()["engine"] == "ok") is not ready:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def says(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


def streamed(
    proxy: Proxy, body: dict[str, Any], headers: dict[str, str]
) -> tuple[httpx.Response, list[dict[str, Any]]]:
    with (
        proxy.client() as client,
        client.stream("POST", CHAT, json=body | {"stream": True}, headers=headers) as response,
    ):
        lines = [line.removeprefix("data: ") for line in response.iter_lines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return response, [json.loads(line) for line in lines[:-1]]


def test_side_turns_are_answered_by_the_side_model_and_main_turns_are_not(routed: Proxy, other: OtherServer) -> None:
    response = routed.chat(says("Name this chat."), headers=SIDE, temperature=0.3, stop=["END"])
    assert response.json()["choices"][0]["message"]["content"] == ANSWER
    assert response.json()["usage"] == {"prompt_tokens": 11, "completion_tokens": 4, "total_tokens": 15}
    assert response.headers[CREDIT] == "answered by side_model openai/small"
    [asked] = other.requests
    assert asked["model"] == "small" and asked["messages"] == says("Name this chat.")
    assert (asked["temperature"], asked["stop"], asked["max_tokens"]) == (0.3, ["END"], 8)
    assert other.headers[0]["authorization"] == f"Bearer {KEY}"
    turn = routed.journal().turn(response.headers["x-openclaw-rl-turn"])
    assert turn is not None and (turn.kind, turn.status) == ("side", "complete")
    assert turn.answer["content"] == ANSWER and not len(turn.response_ids)
    assert turn.untrainable == "answered by side_model openai/small, not by the policy"
    assert CREDIT not in routed.chat(says("Hello.")).headers
    assert len(other.requests) == 1


def test_a_streamed_side_turn_and_its_tool_call(routed: Proxy, other: OtherServer) -> None:
    body = {"messages": says("Name it."), "stream_options": {"include_usage": True}}
    response, chunks = streamed(routed, body, SIDE)
    assert unquote(response.headers[CREDIT]) == "answered by side_model openai/small"
    contents = [chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks if chunk["choices"]]
    assert "".join(contents) == ANSWER and len([text for text in contents if text]) == 3
    assert chunks[-1]["usage"]["total_tokens"] == 15
    other.mode = "call"
    body = {"messages": says("Look."), "tools": [TOOL], "tool_choice": "required"}
    _, chunks = streamed(routed, body, SIDE)
    calls = [call for chunk in chunks for call in chunk["choices"][0]["delta"].get("tool_calls") or ()]
    assert calls[0]["function"]["name"] == "read_file"
    assert "".join(call["function"]["arguments"] for call in calls) == '{"path": "a.txt"}'
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"
    assert other.requests[-1]["tool_choice"] == {"type": "function", "function": {"name": "read_file"}}
    whole = routed.chat(says("Look."), headers=SIDE, tools=[TOOL])
    assert whole.json()["choices"][0]["message"]["tool_calls"][0]["id"] == "call_1"


def test_side_turns_of_other_dialects_too(routed: Proxy) -> None:
    with routed.client(**SIDE) as client:
        messages = client.post("/v1/messages", json={"model": "policy", "max_tokens": 9, "messages": says("Name it.")})
        responses = client.post("/v1/responses", json={"model": "policy", "input": "Name it."})
    assert messages.json()["content"] == [{"type": "text", "text": ANSWER}]
    assert responses.json()["output"][0]["content"][0]["text"] == ANSWER
    assert messages.headers[CREDIT] == responses.headers[CREDIT] == "answered by side_model openai/small"


def test_a_purpose_in_the_metadata_is_read_in_every_dialect(routed: Proxy) -> None:
    stated = {"metadata": {"purpose": "title_generation"}}
    with routed.client() as client:
        answers = [
            client.post(CHAT, json={"messages": says("Ferns.")} | stated),
            client.post("/v1/messages", json={"model": "policy", "max_tokens": 9, "messages": says("Ferns.")} | stated),
            client.post("/v1/responses", json={"model": "policy", "input": "Ferns."} | stated),
        ]
    assert [one.headers["x-openclaw-rl-reason"] for one in answers] == ["header-title"] * 3


def test_a_side_turn_with_a_schema_that_the_policy_cannot_be_held_to_goes_to_the_side_model(
    routed: Proxy, other: OtherServer
) -> None:
    schema = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}
    form = {"format": {"type": "json_schema", "schema": schema}}
    body = {"model": "policy", "max_tokens": 9, "messages": says("Name it."), "output_config": form}
    with routed.client() as client:
        side = client.post("/v1/messages", json=body, headers=SIDE)
        main = client.post("/v1/messages", json=body)
        other.mode = "refuse"
        unanswered = client.post("/v1/messages", json=body, headers=SIDE)
    assert side.json()["content"] == [{"type": "text", "text": ANSWER}]
    why = "the policy cannot be held to the schema that is asked for"
    assert unquote(side.headers[CREDIT]) == f"answered by side_model openai/small; {why}"
    assert other.requests[0]["response_format"]["json_schema"]["schema"] == schema
    for refused in (main, unanswered):
        assert refused.status_code == 400 and "hold answers to a schema" in refused.json()["error"]["message"]


@pytest.mark.parametrize("mode", ["refuse", "break"])
def test_the_policy_answers_for_a_failed_side_model_and_the_reason_is_reported(
    routed: Proxy, other: OtherServer, mode: str
) -> None:
    other.mode = mode
    stream = {"stream": True} if mode == "break" else {}
    response = routed.chat(says(f"Name it, {mode}."), headers=SIDE, **stream)
    if mode == "break":  # its answer had begun: no other model can continue it
        assert "other_model_error" in response.text and "[DONE]" not in response.text
        return
    assert response.status_code == 200 and CREDIT not in response.headers
    turn = routed.journal().turn(response.headers["x-openclaw-rl-turn"])
    assert turn is not None and len(turn.response_ids) and "side_model openai/small failed" in turn.error
    with routed.client() as client:
        report, metrics = client.get("/rl/status").json(), client.get("/metrics").text
    status = report["other_models"]["side_model"]
    assert status["model"] == "openai/small" and status["failed"] >= 1 and "Incorrect API key" in status["last_failure"]
    assert 'openclaw_rl_other_models_total{outcome="failed",role="side_model"}' in metrics
    log = routed.log.read_text()
    assert "side_model openai/small failed" in log
    assert KEY not in log + metrics + json.dumps(report) + turn.error + response.text


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("mode", ["nothing", "page"])
def test_an_empty_answer_of_the_side_model_is_none(routed: Proxy, other: OtherServer, mode: str, stream: bool) -> None:
    other.mode = mode
    response = routed.chat(says(f"Name it, {mode}."), headers=SIDE, stream=stream)
    assert response.status_code == 200 and CREDIT not in response.headers
    turn = routed.journal().turn(response.headers["x-openclaw-rl-turn"])
    assert turn is not None and len(turn.response_ids) and "side_model openai/small failed" in turn.error


def test_a_request_that_was_passed_on_is_not_passed_on_again(routed: Proxy, other: OtherServer) -> None:
    response = routed.chat(says("Name it."), headers=SIDE | {"x-openclaw-rl-routed": "true"})
    assert response.status_code == 200 and other.requests == []
    routed.chat(says("Name it."), headers=SIDE)
    assert other.headers[0]["x-openclaw-rl-routed"] == "true"


@pytest.mark.usefixtures("away")
def test_while_the_engine_is_away_the_fallback_answers_and_nothing_of_it_is_trained_on(routed: Proxy) -> None:
    headers = {"x-session-id": "away"}
    first = routed.chat(says("Hello?"), headers=headers)
    assert first.json()["choices"][0]["message"]["content"] == ANSWER
    assert unquote(first.headers[CREDIT]).startswith("answered by fallback_model openai/big; the engine is away: ")
    history = [*says("Hello?"), {"role": "assistant", "content": ANSWER}, *says("Thanks!")]
    second, chunks = streamed(routed, {"messages": history}, headers)
    assert "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks) == ANSWER
    assert CREDIT in second.headers
    ids = [response.headers["x-openclaw-rl-turn"] for response in (first, second)]
    turn, following = map(routed.journal().turn, ids)
    assert turn is not None and following is not None
    assert (turn.kind, turn.status, len(turn.response_ids)) == ("main", "complete", 0)
    assert "the engine is away" in turn.error
    assert following.parent_turn_id == turn.turn_id, "the conversation continues"
    assert turn.turn_id not in [one.turn_id for one in routed.journal().unjudged(100)]
    assert routed.journal().status()["quarantined"]["answered by fallback_model openai/big, not by the policy"] == 2
    with routed.client() as client:
        report, ready = client.get("/rl/status").json(), client.get("/readyz").json()
    assert report["other_models"]["fallback_model"]["answered"] == 2
    assert ready["ready"] and ready["engine"] != "ok"


class ScriptedOther(OtherModel):
    """Another model that needs no adapter process: says "Instead.", or fails."""

    def __init__(self, role: OtherRole = "fallback_model", *, fails: str = "") -> None:
        super().__init__(role, "scripted", "", "", 60.0, AdapterProcess())
        self.fails = fails

    async def ask(self, request: ChatRequest) -> AsyncIterator[dict[str, Any]]:
        """Stream the scripted answer."""
        if self.fails:
            raise OtherModelFailed("It failed.", reason=self.fails)
        yield {"content": "Instead."}
        yield {"finish": "stop", "usage": {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5}}


class VanishingEngine(ScriptedEngine):
    """Refuses, or with `hangs` says nothing at all, and is not there when it is asked how it is after that."""

    hangs = False
    vanished = False

    async def generate(self, prompt_ids: Sequence[int] | bytes, sampling: Any, **rest: Any) -> AsyncIterator[Tokens]:
        """Nothing."""
        self.vanished = True
        if self.hangs:
            await asyncio.Event().wait()
        raise EngineError("gone", status=503)
        yield

    async def info(self) -> EngineInfo:
        """As the scripted engine's, until something was asked of it."""
        if self.vanished:
            raise EngineError("gone")
        return await super().info()


@pytest.mark.parametrize(("hangs", "choices"), [(False, 2), (True, 1)])
async def test_with_a_scripted_model_an_engine_that_vanishes_before_the_first_token_is_replaced(
    policy_folder: Path, tmp_path: Path, hangs: bool, choices: int
) -> None:
    body = {"messages": says("Hello?"), "n": choices}
    async with scripted_service(policy_folder, tmp_path, "", engine=VanishingEngine) as (client, service, engine):
        assert isinstance(engine, VanishingEngine)
        engine.hangs = hangs
        service.others.fallback = ScriptedOther()
        await service.watch.refresh()
        response = await client.post(CHAT, json=body, timeout=60.0)
        completion = response.json()
        assert [choice["message"]["content"] for choice in completion["choices"]] == ["Instead."] * choices
        assert completion["usage"]["completion_tokens"] == 3 * choices
        credit = unquote(response.headers[CREDIT])
        assert credit == "answered by fallback_model scripted; the engine is away: gone"
        engine.hangs = False
        service.others.fallback = ScriptedOther(fails="secret reasons")
        unanswered = await client.post(CHAT, json=body)
        assert unanswered.status_code == 503 and "gone" in unanswered.text and "secret" not in unanswered.text
        service.others.fallback = ScriptedOther()
        pinned = await client.post(CHAT, json=body | {"model": "policy@0"})
        assert pinned.status_code == 503 and CREDIT not in pinned.headers


@pytest.mark.parametrize("words", [4000, 40_000])
async def test_a_side_turn_that_is_too_long_for_the_policy_goes_to_a_scripted_side_model(
    policy_folder: Path, tmp_path: Path, words: int
) -> None:
    body = {"messages": says("pears, apples; " * words)}
    async with scripted_service(policy_folder, tmp_path, "Ninety.") as (client, service, _):
        await service.watch.refresh()
        service.others.fallback = ScriptedOther()  # stands in for an engine that is away, and for nothing else
        assert (await client.post(CHAT, json=body, headers=SIDE)).json()["error"]["code"] == "context_length_exceeded"
        service.others.side = ScriptedOther("side_model")
        side = await client.post(CHAT, json=body, headers=SIDE)
        assert side.json()["choices"][0]["message"]["content"] == "Instead."
        credit = unquote(side.headers[CREDIT])
        assert credit == "answered by side_model scripted; the prompt is too long for the policy"
        turn = await service.journal.turn(side.headers["x-openclaw-rl-turn"])
        assert turn is not None and turn.error == credit
        main = await client.post(CHAT, json=body)
        assert main.status_code == 400 and main.json()["error"]["code"] == "context_length_exceeded"
        pinned = await client.post(CHAT, json=body | {"model": "policy@0"}, headers=SIDE)
        assert pinned.status_code == 400
        service.others.side = ScriptedOther("side_model", fails="no")
        unanswered = await client.post(CHAT, json=body, headers=SIDE)
        assert unanswered.status_code == 400 and unanswered.json()["error"]["code"] == "context_length_exceeded"


async def test_a_schema_that_no_engine_was_asked_about_goes_to_a_scripted_fallback(
    policy_folder: Path, tmp_path: Path
) -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}
    body = {"messages": says("Hello?"), "response_format": schema}
    async with scripted_service(policy_folder, tmp_path, "", engine=VanishingEngine) as (client, service, engine):
        assert isinstance(engine, VanishingEngine)
        engine.vanished = True
        service.watch.info = None
        await service.watch.refresh()
        assert (await client.post(CHAT, json=body)).status_code == 503
        service.others.fallback = ScriptedOther()
        response = await client.post(CHAT, json=body)
        assert response.json()["choices"][0]["message"]["content"] == "Instead."
        credit = "answered by fallback_model scripted; the engine is away: gone"
        assert unquote(response.headers[CREDIT]) == credit
        turn = await service.journal.turn(response.headers["x-openclaw-rl-turn"])
        assert turn is not None and turn.error == credit
        tools = await client.post(CHAT, json=body | {"tools": [TOOL]})
        assert tools.status_code == 200
        passed_on = await client.post(CHAT, json=body, headers={"x-openclaw-rl-routed": "true"})
        assert passed_on.status_code == 503
