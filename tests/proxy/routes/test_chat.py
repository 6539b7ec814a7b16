"""The chat route of a real proxy with a real engine, over sockets."""

from __future__ import annotations

import asyncio
import json
import math
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from openclaw_rl.shared.records import PolicyVersion, Turn
from tests.fixtures.openclaw import TOOLS
from tests.processes import Engine, Proxy

HELLO = [{"role": "user", "content": "What is 12 + 30?"}]
LONG = {"ignore_eos": True, "temperature": 0.7}


def events(text: str) -> Iterator[dict[str, Any]]:
    """The JSON events of a finished stream."""
    lines = [line for line in text.split("\n\n") if line and not line.startswith(":")]
    assert lines[-1] == "data: [DONE]"
    for line in lines[:-1]:
        yield json.loads(line.removeprefix("data: "))


def recorded(service: Proxy, response: httpx.Response) -> Turn:
    turn = service.journal().turn(response.headers["x-openclaw-rl-turn"])
    assert turn is not None
    return turn


def test_a_stream_has_the_shape_that_clients_expect(service: Proxy) -> None:
    response = service.chat(HELLO, stream=True, stream_options={"include_usage": True}, max_tokens=20)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["x-accel-buffering"] == "no"
    chunks = list(events(response.text))
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in chunks}) == 1
    reasons = [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"] if choice["finish_reason"]]
    assert reasons in (["stop"], ["length"])
    usage = chunks[-1]
    assert usage["choices"] == []
    assert usage["usage"]["total_tokens"] == usage["usage"]["prompt_tokens"] + usage["usage"]["completion_tokens"]
    text = "".join(choice["delta"].get("content", "") for chunk in chunks for choice in chunk["choices"])
    turn = recorded(service, response)
    assert turn.answer["content"] == text
    assert usage["usage"]["completion_tokens"] == len(turn.response_ids)
    assert usage["usage"]["prompt_tokens"] == len(turn.prompt_ids)
    assert chunks[0]["id"] == "chatcmpl-" + turn.turn_id.removeprefix("turn_")


def test_usage_is_left_out_by_default(service: Proxy) -> None:
    chunks = list(events(service.chat(HELLO, stream=True).text))
    assert all(chunk["choices"] and "usage" not in chunk for chunk in chunks)


def test_a_plain_answer_is_recorded_with_its_exact_tokens(service: Proxy) -> None:
    response = service.chat(HELLO, max_tokens=20, temperature=0.8, top_p=0.9, seed=5)
    body = response.json()
    choice = body["choices"][0]
    turn = recorded(service, response)
    assert choice["message"]["role"] == "assistant"
    assert choice["message"]["content"] == turn.answer["content"]
    assert body["model"] == "policy"
    assert body["system_fingerprint"] == "version-0"
    assert body["usage"]["completion_tokens"] == len(turn.response_ids) == len(turn.logprobs) > 0
    assert all(math.isfinite(value) and value <= 0 for value in turn.logprobs)
    assert (turn.sampling.temperature, turn.sampling.top_p, turn.sampling.seed) == (0.8, 0.9, 5)
    assert [(span.version, span.start, span.end) for span in turn.versions] == [(0, 0, len(turn.response_ids))]
    assert (turn.kind, turn.kind_reason, turn.status, turn.untrainable) == ("main", "chat", "complete", "")
    assert turn.timings.first_token is not None
    assert turn.timings.arrived <= turn.timings.first_token <= turn.timings.finished


async def test_each_token_leaves_when_it_is_sampled(service: Proxy) -> None:
    arrivals: list[float] = []
    async with service.async_client() as client:
        hot = {"ignore_eos": True, "temperature": 2.0}  # a lower one may end the answer again and again
        body = {"model": "policy", "messages": HELLO, "stream": True, "max_tokens": 150, **hot}
        async with client.stream("POST", "/v1/chat/completions", json=body) as response:
            async for _ in response.aiter_raw():
                arrivals.append(time.monotonic())
    assert len(arrivals) > 20
    assert arrivals[len(arrivals) // 2] - arrivals[0] < 0.9 * (arrivals[-1] - arrivals[0])


async def test_the_turn_is_in_the_journal_before_the_client_learns_that_it_is_complete(service: Proxy) -> None:
    async with service.async_client() as client:
        body = {"model": "policy", "messages": HELLO, "stream": True, "max_tokens": 12}
        async with client.stream("POST", "/v1/chat/completions", json=body) as response:
            async for line in response.aiter_lines():
                if '"finish_reason":"' in line:
                    assert service.journal().turn(response.headers["x-openclaw-rl-turn"]) is not None
                    return
    pytest.fail("no finish reason came")


async def test_a_client_that_hangs_up_ends_the_engines_work(service: Proxy, engine_server: Engine) -> None:
    async with service.async_client() as client:
        body = {"model": "policy", "messages": HELLO, "stream": True, "max_tokens": 20_000, **LONG}
        async with client.stream("POST", "/v1/chat/completions", json=body) as response:
            turn_id = response.headers["x-openclaw-rl-turn"]
            async for _ in response.aiter_raw():
                break
        deadline = time.monotonic() + 10
        turn = None
        while turn is None and time.monotonic() < deadline:
            turn = service.journal().turn(turn_id)
            await asyncio.sleep(0.02)
        assert turn is not None
        assert (turn.status, turn.finish_reason, turn.error) == ("aborted", "abort", "the client left")
        assert len(turn.response_ids) == len(turn.logprobs) < 20_000
        while time.monotonic() < deadline:
            load = (await client.get(f"{engine_server.url}/model_info")).json()
            if load["running"] == load["waiting"] == 0:
                return
            await asyncio.sleep(0.02)
    pytest.fail("the engine still decodes for a client that left")


async def test_a_session_that_is_deleted_while_it_is_answered_does_not_come_back(service: Proxy) -> None:
    named = {"x-session-id": "deleted-meanwhile"}
    body = {"model": "policy", "messages": HELLO, "stream": True, "max_tokens": 60, **LONG}
    turns = []
    async with service.async_client() as client:
        for end in ("[DONE]", "hang up"):
            async with client.stream("POST", "/v1/chat/completions", json=body, headers=named) as response:
                turns.append(response.headers["x-openclaw-rl-turn"])
                lines = response.aiter_lines()
                await anext(lines)
                while (await client.delete("/rl/sessions/deleted-meanwhile")).status_code == 404:
                    await asyncio.sleep(0.005)  # its episode is written a moment after the request came
                if end == "[DONE]":
                    assert [line async for line in lines if line][-1] == "data: [DONE]"
        while "openclaw_rl_active_answers 0.0" not in (await client.get("/metrics")).text:
            await asyncio.sleep(0.02)
        assert (await client.get("/rl/sessions/deleted-meanwhile")).status_code == 404
        assert [(await client.get(f"/rl/turns/{turn}")).status_code for turn in turns] == [404, 404]
        after = await client.post("/v1/chat/completions", json=body | {"stream": False}, headers=named)
    kept = service.journal().turn(after.headers["x-openclaw-rl-turn"])
    assert kept is not None and kept.session_id == "deleted-meanwhile", "what is asked after that is kept again"


async def test_many_clients_stream_at_once(service: Proxy) -> None:
    async with service.async_client() as client:

        async def one(number: int) -> str:
            body = {
                "model": "policy",
                "messages": [{"role": "user", "content": f"What is {number} + 5?"}],
                "stream": True,
                "max_tokens": 24,
            }
            response = await client.post("/v1/chat/completions", json=body)
            assert response.status_code == 200
            list(events(response.text))
            return str(response.headers["x-openclaw-rl-turn"])

        turns = await asyncio.gather(*(one(number) for number in range(16)))
    assert len(set(turns)) == 16
    assert all(service.journal().turn(turn) is not None for turn in turns)


def test_logprobs_are_reported_for_every_token(service: Proxy) -> None:
    response = service.chat(HELLO, logprobs=True, top_logprobs=3, max_tokens=10, **LONG)
    turn = recorded(service, response)
    logprobs = response.json()["choices"][0]["logprobs"]["content"]
    assert [entry["logprob"] for entry in logprobs] == pytest.approx(turn.logprobs[: len(logprobs)], abs=1e-5)
    assert all(len(entry["top_logprobs"]) == 3 for entry in logprobs)
    assert bytes(logprobs[0]["bytes"]).decode(errors="replace") == logprobs[0]["token"]
    streamed = service.chat(HELLO, logprobs=True, stream=True, max_tokens=10, **LONG)
    entries = [
        entry
        for chunk in events(streamed.text)
        for choice in chunk["choices"]
        if choice["logprobs"]
        for entry in choice["logprobs"]["content"]
    ]
    turn = recorded(service, streamed)
    assert [entry["logprob"] for entry in entries] == pytest.approx(turn.logprobs[: len(entries)], abs=1e-5)
    assert len(turn.logprobs) - len(entries) <= 1  # the token that ends an answer is not part of its text


def test_a_stop_string_ends_the_answer_and_is_not_in_it(service: Proxy) -> None:
    full = service.chat(HELLO, max_tokens=30, temperature=0).json()["choices"][0]["message"]["content"]
    stop = full[len(full) // 2 : len(full) // 2 + 3]
    response = service.chat(HELLO, max_tokens=30, temperature=0, stop=[stop])
    choice = response.json()["choices"][0]
    assert choice["message"]["content"] == full.split(stop)[0].rstrip()
    assert choice["finish_reason"] == "stop"
    assert recorded(service, response).untrainable == ""


def test_a_conversation_continues_in_its_session(service: Proxy) -> None:
    first = service.chat(HELLO)
    answer = first.json()["choices"][0]["message"]
    second = service.chat([*HELLO, answer, {"role": "user", "content": "No, shorter please."}])
    assert second.headers["x-openclaw-rl-session"] == first.headers["x-openclaw-rl-session"]
    turn = recorded(service, second)
    assert turn.parent_turn_id == first.headers["x-openclaw-rl-turn"]
    state = service.journal().next_state(first.headers["x-openclaw-rl-turn"])
    assert state is not None and (state.role, state.text) == ("user", "No, shorter please.")


def test_a_forced_tool_call_is_served_but_not_trained_on(service: Proxy) -> None:
    choice = {"type": "function", "function": {"name": "read"}}
    response = service.chat(HELLO, tools=TOOLS, tool_choice=choice, max_tokens=30)
    assert response.status_code == 200
    assert "tool_choice" in recorded(service, response).untrainable


def test_without_tools_a_tool_choice_of_none_is_an_ordinary_answer(service: Proxy) -> None:
    response = service.chat(HELLO, tools=TOOLS, tool_choice="none")
    assert response.json()["choices"][0]["message"].get("tool_calls") is None
    assert not recorded(service, response).tools


def test_a_turn_that_must_not_be_kept_is_not_kept(service: Proxy) -> None:
    before = sum(entry["count"] for entry in service.journal().status()["classes"])
    headers = {"x-session-id": "secret", "x-rl-train": "never"}
    response = service.chat([{"role": "user", "content": "my secret is 4711"}], headers=headers)
    assert response.status_code == 200
    assert service.journal().turn(response.headers["x-openclaw-rl-turn"]) is None
    assert service.journal().session("secret") is None
    assert sum(entry["count"] for entry in service.journal().status()["classes"]) == before + 1


def test_a_private_request_does_not_settle_what_came_before(service: Proxy) -> None:
    first = service.chat(HELLO)
    answer = first.json()["choices"][0]["message"]
    service.chat([*HELLO, answer, {"role": "user", "content": "private"}], headers={"x-rl-train": "never"})
    assert service.journal().next_state(first.headers["x-openclaw-rl-turn"]) is None


def test_a_session_can_end_with_a_chat_request(service: Proxy) -> None:
    service.chat(HELLO, headers={"x-session-id": "ends", "x-session-done": "true"})
    session = service.journal().session("ends")
    assert session is not None and session.episodes[0].ended is not None


def test_a_version_can_be_asked_for_by_number(service: Proxy) -> None:
    response = service.chat(HELLO, model="policy@0")
    assert response.json()["model"] == "policy@0"
    assert [span.version for span in recorded(service, response).versions] == [0]


def test_more_tokens_than_the_context_holds_are_cut_to_what_it_holds(start_proxy: Callable[..., Proxy]) -> None:
    proxy = start_proxy(context_length=64)
    response = proxy.chat(HELLO, max_tokens=10_000, **LONG)
    usage = response.json()["usage"]
    assert usage["total_tokens"] <= 64
    assert response.json()["choices"][0]["finish_reason"] in ("length", "stop")
    for stream in (False, True):
        refused = proxy.chat([{"role": "user", "content": "word " * 200}], stream=stream)
        error = refused.json()["error"]
        assert (refused.status_code, error["code"], error["param"]) == (400, "context_length_exceeded", "messages")
        assert "maximum context length is 64 tokens" in error["message"]


def test_a_version_that_the_engine_lacks_is_loaded_from_its_checkpoint(
    start_proxy: Callable[..., Proxy], policy_folder: Path, tmp_path: Path
) -> None:
    proxy = start_proxy()
    shutil.copytree(policy_folder, tmp_path / "41" / "served")
    for number, checkpoint in ((41, tmp_path / "41"), (42, tmp_path / "42")):
        proxy.journal().commit_version(
            PolicyVersion(number=number, parent=None, state="candidate", checkpoint=str(checkpoint))
        )
    response = proxy.chat(HELLO, model="policy@41")
    assert response.json()["system_fingerprint"] == "version-41"
    assert [span.version for span in recorded(proxy, response).versions] == [41]
    assert proxy.chat(HELLO).json()["system_fingerprint"] == "version-0"
    gone = proxy.chat(HELLO, model="policy@42")  # its folder does not exist
    assert (gone.status_code, gone.json()["error"]["code"]) == (404, "model_not_found")
