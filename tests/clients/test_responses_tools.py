"""Responses as agents speak it: namespaces, tools of a server, items that are only named, compaction."""

from __future__ import annotations

import json
from typing import Any

import httpx
import openai
import pytest

from tests.clients.conftest import Captured
from tests.clients.words import PATHS, SCHEMA, THOUGHT, TWO_CALLS

SPAWN: dict[str, Any] = {
    "type": "namespace",
    "name": "agents",
    "description": "Tools for agents.",
    "tools": [
        {"type": "function", "name": "read_file", "description": "Ask an agent to read", "parameters": SCHEMA},
        {"type": "custom", "name": "patch", "description": "Ask an agent to patch"},
    ],
}
PLAIN: dict[str, Any] = {"type": "function", "name": "read_file", "description": "Read", "parameters": SCHEMA}
BOTH = pytest.mark.parametrize("stream", [False, True])


def calling(name: str, arguments: dict[str, Any]) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def ask(captured: Captured, stream: bool = False, path: str = "/v1/responses", **body: Any) -> httpx.Response:
    with captured.proxy.client() as client:
        return client.post(path, json={"model": "policy", "max_output_tokens": 60, "stream": stream, **body})


def events(response: httpx.Response) -> list[dict[str, Any]]:
    assert response.status_code == 200, response.text
    lines = response.text.split("\n")
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]


def answered(captured: Captured, stream: bool, **body: Any) -> dict[str, Any]:
    """The response; the events of a stream say the same."""
    response = ask(captured, stream, **body)
    assert response.status_code == 200, response.text
    if not stream:
        return response.json()  # type: ignore[no-any-return]
    seen = events(response)
    done = [event["item"] for event in seen if event["type"] == "response.output_item.done"]
    last: dict[str, Any] = seen[-1]["response"]
    assert done == last["output"]
    ids = {item["id"] for item in last["output"]}
    assert {event["item_id"] for event in seen if "item_id" in event} <= ids
    assert len(ids) == len(done)
    return last


@BOTH
def test_a_namespace_is_offered_flat_and_called_back_by_its_name(captured: Captured, stream: bool) -> None:
    question = {"role": "user", "content": f"Who reads this? ({stream})"}
    captured.engine.say(
        calling("agents__read_file", {"path": "a"})
        + "\n"
        + calling("read_file", {"path": "b"})
        + "\n"
        + calling("agents__patch", {"content": "*** c"})
    )
    tools = [PLAIN, SPAWN]
    first = answered(captured, stream, input=[question], tools=tools)
    calls = first["output"]
    assert [(call["type"], call.get("namespace"), call["name"]) for call in calls] == [
        ("function_call", "agents", "read_file"),
        ("function_call", None, "read_file"),
        ("custom_tool_call", "agents", "patch"),
    ]
    assert calls[2]["input"] == "*** c"
    turn = captured.turn(first["id"])
    assert [tool["function"]["name"] for tool in turn.tools] == ["read_file", "agents__read_file", "agents__patch"]
    outputs = [{"type": f"{call['type']}_output", "call_id": call["call_id"], "output": "done"} for call in calls]
    second = answered(captured, stream, input=[question, *calls, *outputs], tools=tools)
    assert captured.turn(second["id"]).parent_turn_id == turn.turn_id


def test_a_flat_name_that_is_taken_gets_another(captured: Captured) -> None:
    taken = {**PLAIN, "name": "agents__read_file"}
    captured.engine.say(calling("agents__read_file_2", {"path": "a"}))
    response = answered(captured, False, input="Is that name taken?", tools=[SPAWN, taken])
    assert [(call["namespace"], call["name"]) for call in response["output"]] == [("agents", "read_file")]


def test_a_chosen_tool_may_be_in_a_namespace(captured: Captured) -> None:
    choice = {"type": "function", "name": "read_file", "namespace": "agents"}
    body = {"input": "Which one is chosen?", "tools": [PLAIN, SPAWN], "tool_choice": choice}
    assert ask(captured, path="/v1/responses/input_tokens", **body).status_code == 200
    unknown = ask(captured, **{**body, "tool_choice": {**choice, "namespace": "others"}})
    assert (unknown.status_code, unknown.json()["error"]["param"]) == (400, "tool_choice")
    assert "others__read_file" in unknown.json()["error"]["message"]


@BOTH
@pytest.mark.parametrize("choice", [None, "auto", "none"])
def test_tools_of_a_server_are_left_out_and_that_is_said(captured: Captured, stream: bool, choice: Any) -> None:
    captured.engine.say("No web here.")
    tools = [PLAIN, {"type": "web_search", "external_web_access": True}, {"type": "image_generation"}]
    response = ask(captured, stream, input=f"Search! {stream} {choice}", tools=tools, tool_choice=choice)
    assert response.headers["x-openclaw-rl-tools-left-out"] == "web_search, image_generation"
    last = events(response)[-1]["response"] if stream else response.json()
    assert last["tools"] == [PLAIN]
    turn = captured.turn(last["id"])
    assert [tool["function"]["name"] for tool in turn.tools] == ([] if choice == "none" else ["read_file"])


@pytest.mark.parametrize("choice", ["required", {"type": "web_search"}])
def test_a_forced_call_with_tools_of_a_server_is_refused(captured: Captured, choice: Any) -> None:
    tools = [PLAIN, {"type": "web_search"}]
    refused = ask(captured, input="Search!", tools=tools, tool_choice=choice)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "tool_choice")
    assert "web_search would run on the server" in refused.json()["error"]["message"]


def test_the_work_of_a_servers_tool_is_left_out_of_the_history(captured: Captured) -> None:
    captured.engine.say("Hello again.")
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}
    more = {"type": "additional_tools", "role": "developer", "tools": [PLAIN]}
    items = [{"role": "user", "content": "Was there a search?"}, search, more]
    turn = captured.turn(answered(captured, False, input=items)["id"])
    assert [message["role"] for message in turn.messages] == ["user"]
    assert [tool["function"]["name"] for tool in turn.tools] == ["read_file"]


@BOTH
def test_items_of_kept_turns_may_only_be_named(captured: Captured, stream: bool) -> None:
    captured.engine.say(THOUGHT, TWO_CALLS, "All read.")
    question = {"role": "user", "content": f"Name your items. ({stream})"}
    first = answered(captured, stream, input=[question], tools=[PLAIN])
    assert [item["type"] for item in first["output"]] == ["reasoning", "message"]
    assert first["store"] is True
    named = [{"type": "item_reference", "id": item["id"]} for item in first["output"]]
    again = {"role": "user", "content": "Now read both."}
    second = answered(captured, stream, input=[question, *named, again], tools=[PLAIN])
    assert captured.turn(second["id"]).parent_turn_id == captured.turn(first["id"]).turn_id
    calls = [item for item in second["output"] if item["type"] == "function_call"]
    assert [json.loads(call["arguments"])["path"] for call in calls] == PATHS
    named += [again, *({"type": "item_reference", "id": item["id"]} for item in second["output"])]
    outputs = [{"type": "function_call_output", "call_id": call["call_id"], "output": "x"} for call in calls]
    third = answered(captured, stream, input=[question, *named, *outputs], tools=[PLAIN])
    turn = captured.turn(third["id"])
    assert turn.parent_turn_id == captured.turn(second["id"]).turn_id
    assert [message["role"] for message in turn.messages] == [
        "user", "assistant", "user", "assistant", "tool", "tool",
    ]  # fmt: skip


def test_items_that_are_not_kept_are_refused_with_the_reason(captured: Captured) -> None:
    with captured.proxy.client(**{"x-rl-train": "never"}) as client:
        response = client.post("/v1/responses", json={"model": "policy", "input": "Forget me.", "max_output_tokens": 4})
    assert response.json()["store"] is False
    for identity in (response.json()["output"][0]["id"], "msg_" + "0" * 32, "msg_elsewhere", "rs_" + "0" * 32 + "_7"):
        items = [{"role": "user", "content": "Forget me."}, {"type": "item_reference", "id": identity}]
        refused = ask(captured, input=items)
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "item_not_found"), identity
        assert "only recorded and complete answers" in refused.json()["error"]["message"]
        assert refused.json()["error"]["param"] == "input[1]"


def test_store_is_reported_as_it_was_asked_for(captured: Captured) -> None:
    captured.engine.say("Kept.", "Not named.")
    assert answered(captured, False, input="Store this?")["store"] is True
    assert answered(captured, False, input="Or not?", store=False)["store"] is False


def test_a_conversation_is_compacted_by_its_own_route(captured: Captured, openai_client: openai.OpenAI) -> None:
    captured.engine.say("Ferns want shade.", "They asked about ferns; shade was the answer.", "In autumn.")
    question: Any = {"role": "user", "content": "What do ferns want?"}
    first = answered(captured, False, input=[question])
    history: Any = [question, *first["output"]]
    compacted = openai_client.responses.compact(model="policy", input=history)
    assert compacted.object == "response.compaction"
    assert [item.type for item in compacted.output] == ["message", "compaction"]
    turn = captured.turn(compacted.id)
    assert (turn.kind, turn.kind_reason, len(turn.tools)) == ("side", "compaction", 0)
    items = [item.model_dump(exclude_none=True) for item in compacted.output]
    after = answered(captured, False, input=[*items, {"role": "user", "content": "And when are they cut?"}])
    texts = [str(message["content"]) for message in captured.turn(after["id"]).messages]
    assert texts[0] == "What do ferns want?"
    assert "They asked about ferns; shade was the answer." in texts[1]


@BOTH
def test_a_trigger_in_the_input_compacts_too(captured: Captured, stream: bool) -> None:
    captured.engine.say("They said hello.")
    items = [{"role": "user", "content": f"Hello. ({stream})"}, {"type": "compaction_trigger"}]
    response = answered(captured, stream, input=items, tools=[PLAIN], tool_choice="auto")
    assert [item["type"] for item in response["output"]] == ["compaction"]
    assert captured.turn(response["id"]).kind == "side"


def test_a_compaction_of_another_service_is_refused(captured: Captured) -> None:
    for content in ("gAAAA", None, "openclaw-rl-summary-1:%%%"):
        refused = ask(captured, input=[{"type": "compaction", "encrypted_content": content}])
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "input[0].encrypted_content")


def test_a_websocket_is_refused_so_that_the_client_falls_back(captured: Captured) -> None:
    upgrade = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13", "sec-websocket-key": "x"}
    with captured.proxy.client() as client:
        refused = client.get("/v1/responses", headers=upgrade)
        assert (refused.status_code, refused.json()["error"]["code"]) == (426, "websocket_not_supported")
        assert client.get("/v1/responses").status_code == 405


@BOTH
def test_messages_leaves_out_tools_of_a_server_too(captured: Captured, stream: bool) -> None:
    captured.engine.say("No web in Messages.")
    tools = [{"type": "web_search_20250305", "name": "web_search"}, {"name": "read_file", "input_schema": SCHEMA}]
    body = {"messages": [{"role": "user", "content": f"Search with Messages! ({stream})"}], "tools": tools}
    response = ask(captured, stream, path="/v1/messages", max_tokens=60, **body)
    assert response.headers["x-openclaw-rl-tools-left-out"] == "web_search_20250305"
    turn = captured.turn(response.headers["x-openclaw-rl-turn"])
    assert [tool["function"]["name"] for tool in turn.tools] == ["read_file"]
    for choice in ({"type": "any"}, {"type": "tool", "name": "web_search"}):
        refused = ask(captured, stream, path="/v1/messages", max_tokens=60, tool_choice=choice, **body)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "tool_choice")
    unnamed = ask(captured, stream, path="/v1/messages", max_tokens=60, **body | {"tools": [tools[0], {}]})
    assert (unnamed.status_code, unnamed.json()["error"]["param"]) == (400, "tools[1].name")
