"""The official `openai` client against the running service."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.processes import Proxy

QUESTION: list[openai.types.chat.ChatCompletionMessageParam] = [{"role": "user", "content": "What is 7 + 5?"}]
READ = [{"role": "user", "content": "Please read notes/today.md."}]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "read_file",
            "description": "Read a file",
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
        },
    }
]


@pytest.fixture
def client(service: Proxy) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{service.url}/v1", api_key=service.key, max_retries=0) as made:
        yield made


def _readable(arguments: str) -> bool:
    try:
        return isinstance(json.loads(arguments), dict)
    except ValueError:
        return False


def test_a_plain_answer(client: openai.OpenAI, service: Proxy) -> None:
    completion = client.chat.completions.create(model="policy", messages=QUESTION, max_tokens=20)
    assert completion.choices[0].message.content
    assert completion.usage is not None and completion.usage.completion_tokens > 0
    turn = service.journal().turn("turn_" + completion.id.removeprefix("chatcmpl-"))
    assert turn is not None and turn.answer["content"] == completion.choices[0].message.content


def test_a_streamed_answer_with_usage(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model="policy", messages=QUESTION, max_tokens=20, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] in ("stop", "length")
    assert chunks[-1].usage is not None and chunks[-1].usage.total_tokens > 0


def test_the_clients_own_assembly_of_a_stream(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(model="policy", messages=QUESTION, max_tokens=20) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    assert final.choices[0].message.content


@pytest.mark.parametrize("stream", [False, True])
def test_tool_calls_and_their_results(client: openai.OpenAI, service: Proxy, stream: bool) -> None:
    message: Any = None
    for seed in range(20):  # a small policy sometimes writes no call, or an unreadable one
        arguments: dict[str, Any] = {"messages": READ, "tools": TOOLS, "seed": seed, "max_tokens": 60}
        if stream:
            with client.chat.completions.stream(model="policy", **arguments) as events:
                choice = events.get_final_completion().choices[0]
        else:
            choice = client.chat.completions.create(model="policy", **arguments).choices[0]
        message = choice.message
        assert (choice.finish_reason == "tool_calls") == bool(message.tool_calls)
        if message.tool_calls and all(_readable(call.function.arguments) for call in message.tool_calls):
            break
    assert message.tool_calls, "no call in twenty answers"
    calls = [
        {"id": call.id.replace("_", ""), "type": "function", "function": call.function.model_dump()}
        for call in message.tool_calls
    ]
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": f"forty-{number}"} for number, call in enumerate(calls)
    ]
    echoed = {"role": "assistant", "content": message.content, "tool_calls": calls}
    history: Any = [*READ, echoed, *results]
    after = client.chat.completions.with_raw_response.create(
        model="policy", messages=history, tools=TOOLS, max_tokens=8
    )
    turn = service.journal().turn(after.headers["x-openclaw-rl-turn"])
    assert turn is not None and turn.parent_turn_id is not None
    state = service.journal().next_state(turn.parent_turn_id)
    assert state is not None
    assert (state.role, state.text.startswith("forty-0")) == ("tool", True)


def test_a_named_tool_is_called(client: openai.OpenAI) -> None:
    choice: Any = {"type": "function", "function": {"name": "read_file"}}
    reached = set()
    for seed in range(5):
        arguments: dict[str, Any] = {"messages": READ, "tools": TOOLS, "tool_choice": choice, "seed": seed}
        answer = client.chat.completions.create(model="policy", max_tokens=60, **arguments).choices[0]
        reached |= {call.function.name for call in answer.message.tool_calls or []}
    assert "read_file" in reached


def test_a_conversation_without_any_header_is_one_session(client: openai.OpenAI, service: Proxy) -> None:
    first = client.chat.completions.create(model="policy", messages=QUESTION, max_tokens=20)
    answer = first.choices[0].message
    messages = [*QUESTION, answer, {"role": "user", "content": "Thanks."}]
    second = client.chat.completions.create(model="policy", messages=messages, max_tokens=8)  # type: ignore[arg-type]
    turn = service.journal().turn("turn_" + second.id.removeprefix("chatcmpl-"))
    assert turn is not None
    assert turn.parent_turn_id == "turn_" + first.id.removeprefix("chatcmpl-")


def test_models(client: openai.OpenAI) -> None:
    assert "policy" in [model.id for model in client.models.list()]
    assert client.models.retrieve("policy").id == "policy"


def test_errors_become_the_clients_own(client: openai.OpenAI, service: Proxy) -> None:
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="policy@unknown", messages=QUESTION)
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as long:
        client.chat.completions.create(
            model="policy", messages=[{"role": "user", "content": "pear " * 60_000}], stream=True
        )
    assert long.value.code == "context_length_exceeded"
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=f"{service.url}/v1", api_key="wrong", max_retries=0).models.list()
