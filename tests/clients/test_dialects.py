"""One conversation over several dialects, and what all dialects have in common."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import httpx
import openai
import pytest

from openclaw_rl.proxy.http.limits import LARGEST_BODY
from tests.clients.conftest import Captured
from tests.clients.engine_log import BROKEN
from tests.clients.words import ANTHROPIC_TOOLS, CHAT_TOOLS, RESPONSES_TOOLS, TWO_CALLS

if TYPE_CHECKING:
    import anthropic

CALL = '<tool_call>\n{"name": "read_file", "arguments": {"path": "a.md"}}\n</tool_call>'


def test_a_conversation_goes_from_dialect_to_dialect(
    openai_client: openai.OpenAI, anthropic_client: anthropic.Anthropic, captured: Captured
) -> None:
    captured.engine.say(CALL, TWO_CALLS, "It says milk.")
    question = "Read a file in chat, please."
    opened: Any = openai_client.chat.completions.create(
        model="policy", messages=[{"role": "user", "content": question}], tools=CHAT_TOOLS, max_tokens=60
    )
    call = opened.choices[0].message.tool_calls[0]
    use = {"type": "tool_use", "id": "toolu_1", "name": "read_file", "input": {"path": "a.md"}}
    history: list[Any] = [
        {"role": "user", "content": question},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "milk"}]},
    ]
    assert json.loads(call.function.arguments) == {"path": "a.md"}
    second = anthropic_client.messages.create(model="policy", max_tokens=60, messages=history, tools=ANTHROPIC_TOOLS)
    calls: Any = [block for block in second.content if block.type == "tool_use"]
    items: Any = [
        {"role": "user", "content": question},
        {"type": "function_call", "call_id": "call_9", "name": "read_file", "arguments": '{"path":"a.md"}'},
        {"type": "function_call_output", "call_id": "call_9", "output": "milk"},
        {"role": "assistant", "content": "I read both."},
        *(
            {"type": "function_call", "call_id": block.id, "name": block.name, "arguments": json.dumps(block.input)}
            for block in calls
        ),
        *({"type": "function_call_output", "call_id": block.id, "output": "milk"} for block in calls),
    ]
    third = openai_client.responses.create(model="policy", input=items, tools=RESPONSES_TOOLS, max_output_tokens=60)
    fourth = openai_client.responses.create(
        model="policy", input="Thanks.", previous_response_id=third.id, tools=RESPONSES_TOOLS, max_output_tokens=60
    )
    turns = [captured.turn(identity) for identity in (opened.id, second.id, third.id, fourth.id)]
    assert [turn.dialect for turn in turns] == ["chat", "messages", "responses", "responses"]
    assert [turn.parent_turn_id for turn in turns] == [None, *(turn.turn_id for turn in turns[:3])]
    assert len({turn.session_id for turn in turns}) == 1
    assert len({json.dumps(turn.tools) for turn in turns}) == 1


def test_the_ids_of_answers_name_turns_everywhere(anthropic_client: anthropic.Anthropic, captured: Captured) -> None:
    message = anthropic_client.messages.create(
        model="policy", max_tokens=8, messages=[{"role": "user", "content": "What do you think of thumbs?"}]
    )
    with captured.proxy.client() as client:
        given = client.post("/rl/feedback", json={"turn_id": message.id, "thumb": "up"})
        shown = client.get(f"/rl/turns/{message.id}").json()
    assert given.status_code == 200
    assert (shown["turn"]["dialect"], shown["feedback"][0]["score"]) == ("messages", 1.0)


def test_a_client_cannot_say_which_dialect_it_speaks(captured: Captured) -> None:
    marked = {"x-openclaw-rl-dialect": "guess messages", "x-openclaw-rl-chat": "http://127.0.0.1:1"}
    said = captured.proxy.chat([{"role": "user", "content": "I speak Anthropic."}], marked)
    assert captured.turn(said.json()["id"]).dialect == "chat"
    with captured.proxy.client(**marked) as client:
        body = {"model": "policy", "input": "I speak Anthropic, too.", "max_output_tokens": 8}
        assert captured.turn(client.post("/v1/responses", json=body).json()["id"]).dialect == "responses"


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages"])
def test_an_answer_that_breaks_off_ends_in_an_error(captured: Captured, path: str) -> None:
    captured.engine.say(BROKEN, BROKEN)
    body: dict[str, Any] = {"model": "policy", "stream": True, "max_tokens": 50}
    text = f"Break off on {path}."
    body |= {"input": text} if path == "/v1/responses" else {"messages": [{"role": "user", "content": text}]}
    with captured.proxy.client() as client:
        with client.stream("POST", path, json=body) as response:
            blocks = [block for block in "".join(response.iter_text()).split("\n\n") if block]
        whole = client.post(path, json={**body, "stream": False})
    assert response.status_code == 200
    kind, data = blocks[-1].split("\n")
    assert kind == "event: error"
    assert "ended the stream after 3 tokens" in json.loads(data.removeprefix("data: "))["error"]["message"]
    assert whole.status_code in (502, 503)


def test_bodies_that_are_none(captured: Captured) -> None:
    bodies: list[Any] = [
        b"", b"{", b"[]", b'"x"', {"messages": "hello"}, {"messages": [{"role": "user"}]}, {"messages": [1]},
        {"messages": [{"role": "tool", "content": "x"}]}, {"messages": [{"role": "user", "content": [{}]}]},
        {"messages": [{"role": "user", "content": "x"}], "tools": [{"name": "a"}]},
        {"messages": [{"role": "user", "content": "x"}], "tool_choice": "any"},
        {"messages": [{"role": "user", "content": "x"}], "thinking": 3, "max_tokens": 3},
        {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": 3}]}]},
        {"input": 3}, {"input": []}, {"input": [3]}, {"input": [{"type": "message", "role": "user"}]},
        {"input": [{"type": "function_call", "call_id": "x"}]}, {"input": "x", "tools": {"type": "function"}},
        {"input": "x", "tools": [{"type": "function", "name": 3}]}, {"input": "x", "text": "json"},
        {"input": "x", "tool_choice": {"type": "allowed_tools"}}, {"input": "x", "reasoning": "high"},
        {"input": "x", "metadata": 3}, {"input": "x", "user": [3]}, {"input": "x", "previous_response_id": 3},
        {"input": "x", "instructions": [3]}, {"input": "x", "max_output_tokens": "many"},
        {"input": [{"type": [None]}]}, {"input": [{"type": "function_call_output", "call_id": {}, "output": "x"}]},
        {"messages": [{"role": "user", "content": [{"type": []}]}]},
        *({"input": "x", "tools": [{"type": "function", "name": "f", "parameters": wrong}]} for wrong in ("", [], 3)),
        {"messages": [{"role": "user", "content": "x"}], "system": [{"type": {}, "text": "x"}]},
    ]  # fmt: skip
    with captured.proxy.client() as client:
        for body in bodies:
            data = body if isinstance(body, bytes) else json.dumps(body)
            for path in ("/v1/responses", "/v1/messages", "/v1/messages/count_tokens"):
                response = client.post(path, content=data)
                assert response.status_code in (200, 400), (path, body, response.text)
                error = response.json().get("error")
                assert error is None or error["message"], (path, body)
                assert "Traceback" not in response.text
        assert client.get("/v1/messages").status_code == 405
        large = client.post("/v1/messages", content=b" " * (LARGEST_BODY + 1))
    assert (large.status_code, large.json()["error"]["type"]) == (413, "request_too_large")


def test_requests_side_by_side_do_not_mix(captured: Captured) -> None:
    captured.engine.say()
    results: dict[str, httpx.Response] = {}

    def ask(path: str, text: str) -> None:
        body: dict[str, Any] = {"model": "policy", "max_tokens": 12, "max_output_tokens": 12}
        body |= {"input": text} if path == "/v1/responses" else {"messages": [{"role": "user", "content": text}]}
        with captured.proxy.client() as client:
            results[text] = client.post(path, json=body)

    paths = {f"Number {number}, please.": path for number, path in enumerate(["/v1/responses", "/v1/messages"] * 2)}
    threads = [threading.Thread(target=ask, args=(path, text)) for text, path in paths.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for text, path in paths.items():
        turn = captured.turn(results[text].json()["id"])
        assert (turn.messages[-1]["content"], turn.dialect) == (text, path.rpartition("/")[2])
