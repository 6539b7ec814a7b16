from __future__ import annotations

from typing import Any

import pytest

from openclaw_rl.shared.chat_client import ChatClient, ChatError, CutOff
from tests.scripted import completion, events, piece, plain, scripted

ASK = [{"role": "user", "content": "hello"}]


async def test_whole_answer_carries_text_and_headers_against_a_scripted_service() -> None:
    said = {"turn": "turn_1", "session": "s", "kind": "main", "reason": "plain"}
    headers = "".join(f"x-openclaw-rl-{name}: {value}\r\n" for name, value in said.items())
    async with (
        scripted(lambda *_: plain(completion("hi"), headers=headers)) as service,
        ChatClient(service.url, "KEY") as client,
    ):
        reply = await client.chat(ASK, max_tokens=5)
        assert (reply.text, reply.finish_reason, reply.turn_id, reply.session_id) == ("hi", "stop", "turn_1", "s")
        assert (reply.kind, reply.reason) == ("main", "plain")
        path, body, sent = service.requests[0]
        assert path == "/v1/chat/completions"
        assert body == {"model": "policy", "messages": ASK, "max_tokens": 5}
        assert sent["authorization"] == "Bearer KEY"
        assert not any(name.startswith("x-") for name in sent)


async def test_streamed_answer_is_joined_against_a_scripted_service() -> None:
    body = events(piece("a"), ": ignored", piece("b"), piece("", "stop"), "[DONE]")
    body = body.replace(b"data: : ignored", b": ping")
    async with scripted(lambda *_: body) as service, ChatClient(service.url, "KEY") as client:
        reply = await client.chat(ASK, stream=True)
        assert (reply.text, reply.finish_reason) == ("ab", "stop")


async def test_it_comes_again_after_a_hang_up_an_overload_and_a_cut_stream_with_the_same_history() -> None:
    answers: list[bytes | None] = [
        None,
        plain({"error": {"message": "later"}}, 503),
        events(piece("half an ans")),
        events(piece("whole"), piece("", "stop"), "[DONE]"),
    ]

    def respond(*_: Any) -> bytes | None:
        return answers.pop(0)

    async with scripted(respond) as service, ChatClient(service.url, "KEY") as client:
        reply = await client.chat(ASK, stream=True)
        assert reply.text == "whole"
        assert client.retries == 3
        assert [body["messages"] for _, body, _ in service.requests] == [ASK] * 4


async def test_a_refusal_is_not_tried_again() -> None:
    async with (
        scripted(lambda *_: plain({"error": {"message": "no such model"}}, 404)) as service,
        ChatClient(service.url, "K") as client,
    ):
        with pytest.raises(ChatError, match="no such model") as failure:
            await client.chat(ASK)
        assert failure.value.status == 404
        assert len(service.requests) == 1


async def test_without_patience_the_first_failure_is_raised() -> None:
    async with scripted(lambda *_: None) as service, ChatClient(service.url, "KEY", patience=0) as client:
        with pytest.raises(ChatError, match="cannot be reached"):
            await client.chat(ASK)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (events(piece("a")), "without"),
        (events(piece("a"), "[DONE]"), "finish reason"),
        (events(piece("a"), '{"error": {"message": "engine gone"}}'), "engine gone"),
    ],
)
async def test_a_stream_that_does_not_end_properly_is_cut_off(body: bytes, message: str) -> None:
    async with scripted(lambda *_: body) as service, ChatClient(service.url, "KEY", patience=0) as client:
        with pytest.raises(CutOff, match=message):
            await client.chat(ASK, stream=True)


async def test_control_routes_are_tried_again_too() -> None:
    answers = [None, plain({"ok": True})]
    async with scripted(lambda *_: answers.pop(0)) as service, ChatClient(service.url, "KEY") as client:
        assert await client.get("/rl/status") == {"ok": True}
        assert len(service.requests) == 2
