"""Mistakes of clients: always a clear error in OpenAI's shape, never a 500, and the service continues."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from openclaw_rl.shared.errors import BadRequest
from openclaw_rl.shared.messages.normalize import normalize_chat
from tests.processes import HTTP, Proxy
from tests.proxy.scripted_engine import scripted_service

HELLO = [{"role": "user", "content": "hello"}]
PIXEL = "data:image/png;base64,iVBORw0KGgo="


def refused(response: httpx.Response, status: int) -> dict[str, Any]:
    """The error object, checked for its shape."""
    assert response.status_code == status, response.text
    body = response.json()
    assert list(body) == ["error"]
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert body["error"]["message"]
    return dict(body["error"])


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"temperature": 3}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": 10**400}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_k": 1.5}, "top_k"),
        ({"min_p": 2}, "min_p"),
        ({"frequency_penalty": 9}, "frequency_penalty"),
        ({"seed": "x"}, "seed"),
        ({"stop": 5}, "stop"),
        ({"stop": ["a", 5]}, "stop"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": []}, "stream_options"),
        ({"n": 17}, "n"),
        ({"n": 0}, "n"),
        ({"logprobs": True, "top_logprobs": 99}, "top_logprobs"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"tools": [{"type": "function"}]}, "tools[0].function.name"),
        ({"tools": {}}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"model": 5}, "model"),
    ],
    ids=lambda value: json.dumps(value)[:40] if isinstance(value, dict) else "",
)
def test_a_field_that_cannot_be_honoured_is_named(service: Proxy, change: dict[str, Any], param: str) -> None:
    with service.client() as client:
        response = client.post("/v1/chat/completions", json={"model": "policy", "messages": HELLO, **change})
    assert refused(response, 400)["param"] == param


@pytest.mark.parametrize("stream", [False, True])
def test_images_are_refused_not_dropped(service: Proxy, stream: bool) -> None:
    parts = [{"type": "text", "text": "what is this?"}, {"type": "image_url", "image_url": {"url": PIXEL}}]
    error = refused(service.chat([{"role": "user", "content": parts}], stream=stream), 400)
    assert "image_url" in error["message"]
    assert error["param"] == "messages[0].content[1]"


@pytest.mark.parametrize(
    "body", [b"", b"{", b"hello", b"[1, 2]", b"null", b'"text"', b'{"a": NaN}', b"\xff\xfe", b"[" * 100_000]
)
def test_a_body_that_is_no_json_object(service: Proxy, body: bytes) -> None:
    with service.client() as client:
        response = client.post("/v1/chat/completions", content=body)
    assert refused(response, 400)["code"] == "invalid_json"


@pytest.mark.parametrize("model", ["x" * 201, "policy@", "policy@x", "policy@-1", "policy@7", "policy@99999999999"])
def test_an_unknown_model(service: Proxy, model: str) -> None:
    error = refused(service.chat(HELLO, model=model), 404)
    assert (error["code"], error["param"]) == ("model_not_found", "model")


def test_no_model_at_all_means_the_policy(service: Proxy) -> None:
    with service.client() as client:
        response = client.post("/v1/chat/completions", json={"messages": HELLO, "max_tokens": 3})
    assert response.json()["model"] == "policy"


def test_broken_tool_arguments_in_the_history_are_the_models_problem(service: Proxy) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path": '}}
    history = [
        *HELLO,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "not JSON"},
    ]
    assert service.chat(history).status_code == 200


def test_unknown_fields_and_half_emoji_are_no_obstacle(service: Proxy) -> None:
    messages = b'[{"role":"user","content":"a\\ud83d"}]'
    body = b'{"model":"policy","max_tokens":3,"store":false,"foo":{"bar":1},"messages":' + messages + b"}"
    with service.client() as client:
        assert client.post("/v1/chat/completions", content=body).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
def test_half_an_emoji_to_stop_at_is_no_obstacle(service: Proxy, stream: bool) -> None:
    sent = json.dumps({"model": "policy", "max_tokens": 3, "stream": stream, "messages": HELLO, "stop": ["\ud83d"]})
    with service.client() as client:
        response = client.post("/v1/chat/completions", content=sent)
    assert response.status_code == 200
    assert '"error"' not in response.text
    turn = service.journal().turn(response.headers["x-openclaw-rl-turn"])
    assert turn is not None
    assert turn.sampling.stop == ("\ufffd",)


def test_a_session_id_that_is_none(service: Proxy) -> None:
    assert refused(service.chat(HELLO, headers={"x-session-id": "x" * 300}), 400)["param"] == "X-Session-Id"


@pytest.mark.parametrize(
    "headers", [{}, {"authorization": "Bearer wrong"}, {"authorization": "Basic dGVzdA=="}, {"x-api-key": "wrong"}]
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/models", "/rl/status", "/metrics", "/nowhere"])
def test_without_the_key_nothing_is_disclosed(service: Proxy, headers: dict[str, str], path: str) -> None:
    response = HTTP.get(service.url + path, headers=headers)
    assert refused(response, 401)["code"] == "invalid_api_key"
    assert response.headers["www-authenticate"] == "Bearer"


def test_the_key_may_come_as_anthropic_clients_send_it(service: Proxy) -> None:
    assert HTTP.get(f"{service.url}/v1/models", headers={"x-api-key": service.key}).status_code == 200


def test_routes_and_methods_that_do_not_exist(service: Proxy) -> None:
    with service.client() as client:
        assert refused(client.get("/v1/nothing"), 404)["code"] == "unknown_url"
        refused(client.get("/v1/chat/completions"), 405)
        batches = client.post("/v1/messages/batches").json()  # in Anthropic's words
        assert (batches["type"], batches["error"]["type"]) == ("error", "not_found_error")


def test_a_body_of_forty_megabytes_is_refused_and_its_sender_informed(service: Proxy) -> None:
    body = b'{"messages": "' + b"x" * (40 << 20) + b'"}'
    with service.client() as client:
        assert refused(client.post("/v1/chat/completions", content=body), 413)["code"] == "request_too_large"


def test_too_much_is_refused_before_it_has_come(service: Proxy) -> None:
    host, port = service.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {service.key}\r\n"
            f"Content-Length: {40 << 20}\r\n\r\n".encode()
        )
        assert connection.recv(4096).startswith(b"HTTP/1.1 413 ")


def test_a_body_without_a_length_is_measured_as_it_comes(start_proxy: Callable[..., Proxy]) -> None:
    proxy = start_proxy()
    with proxy.client() as client:
        chunks = (b"x" * (1 << 20) for _ in range(40))
        refused(client.post("/v1/chat/completions", content=chunks), 413)
        assert client.get("/v1/models").status_code == 200


def test_a_client_that_leaves_in_the_middle_of_its_request_does_no_harm(service: Proxy) -> None:
    host, port = service.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {service.key}\r\n"
            f"Content-Length: 100\r\n\r\n{{".encode()
        )
    assert service.chat(HELLO).status_code == 200


def test_hostile_histories_are_answered_in_time(service: Proxy) -> None:
    used = cpu_seconds(service)
    response = service.chat([{"role": "user", "content": "\n" * 3000 + "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>" * 50}])
    assert response.status_code in (200, 400)
    assert cpu_seconds(service) - used < 10


def cpu_seconds(service: Proxy) -> float:
    """CPU time of the proxy so far: unlike the time on the clock, the same on a busy machine."""
    times = psutil.Process(service.process.pid).cpu_times()
    return times.user + times.system


WORDS = "the river of stones ran past 12 houses and 7 questions\n"


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": WORDS * 220_000}],
        [{"role": "user", "content": "x y\n" * 3_000_000}],
        [{"role": "user", "content": " " * 12_000_000}],
        [{"role": "user", "content": "😀" * 700_000}],
        [{"role": ("user", "assistant")[index % 2], "content": WORDS * 100} for index in range(2200)],
        [{"role": ("user", "assistant")[index % 2], "content": "x"} for index in range(400_000)],
    ],
    ids=["words", "lines", "spaces", "emoji", "many messages", "very many messages"],
)
def test_a_prompt_that_is_far_too_long_is_refused_at_once_and_others_are_answered(
    service: Proxy, messages: list[dict[str, Any]]
) -> None:
    answers: list[int] = []
    done = threading.Event()

    def look() -> None:
        with service.client() as client:
            while not answers or not done.wait(0.01):
                answers.append(client.get("/healthz").status_code)

    body = json.dumps({"model": "policy", "messages": messages, "max_tokens": 8})
    with ThreadPoolExecutor(1) as others, service.client() as client:
        looking = others.submit(look)
        try:
            response = client.post("/v1/chat/completions", content=body)
        finally:
            done.set()
        looking.result()
    error = refused(response, 400)
    assert (error["code"], error["param"]) == ("context_length_exceeded", "messages")
    assert "maximum context length is 32768 tokens" in error["message"]
    assert 32768 < counted(error) < 2 * 32768 or counted(error) == len(messages), "the rest was not tokenized"
    assert set(answers) == {200}


def counted(error: dict[str, Any]) -> int:
    """The tokens or messages that were counted when a prompt was refused."""
    found = re.search(r"resulted in more than (\d+) tokens|sent (\d+) messages, each", error["message"])
    assert found, error["message"]
    return int(found[1] or found[2])


def test_a_prompt_that_is_a_little_too_long_is_refused_with_its_length(service: Proxy) -> None:
    error = refused(service.chat([{"role": "user", "content": WORDS * 2_000}]), 400)
    assert error["code"] == "context_length_exceeded"
    assert re.search(r"you requested \d{5} tokens", error["message"]), error["message"]


def test_tools_count_as_part_of_a_prompt_that_is_too_long(service: Proxy) -> None:
    function = {"description": WORDS * 20_000, "parameters": {}}
    tools = [{"type": "function", "function": {"name": f"f{index}", **function}} for index in range(10)]
    error = refused(service.chat(HELLO, tools=tools), 400)
    assert error["code"] == "context_length_exceeded"
    assert 32768 < counted(error) < 2 * 32768


@pytest.mark.slow
async def test_a_text_that_the_tokenizer_gives_up_is_refused(policy_folder: Path, tmp_path: Path) -> None:
    chat = normalize_chat({"messages": [{"role": "user", "content": " " * 12_000_000}]}, blind="text only")
    async with scripted_service(policy_folder, tmp_path, "by a scripted engine") as (_, service, _):
        with pytest.raises(BadRequest, match="cannot be tokenized"):
            await service.renderer.tokenize(chat, None)
