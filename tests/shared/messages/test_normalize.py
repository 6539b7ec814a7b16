from __future__ import annotations

from typing import Any

import pytest

from openclaw_rl.shared.errors import BadRequest
from openclaw_rl.shared.messages.normalize import (
    ANY_TOOL,
    is_internal_context,
    normalize_chat,
    normalize_messages,
    text_of,
)
from tests.shared.tiny_vision import data_url, picture

PARAMETERS = {"type": "object", "properties": {"path": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "read", "description": "Reads.", "parameters": PARAMETERS}}
HELLO = {"role": "user", "content": "hello"}


def normalize(**message: Any) -> dict[str, Any]:
    return normalize_messages([message])[0]


def call(arguments: Any, name: Any = "read") -> dict[str, Any]:
    return {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}


def test_a_plain_conversation_stays_as_it_is() -> None:
    sent = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "Bye"},
    ]
    assert normalize_messages(sent) == sent


def test_developer_is_system_wherever_it_stands() -> None:
    sent = [HELLO, {"role": "developer", "content": "Be brief."}, {"role": "system", "content": "And kind."}]
    assert [message["role"] for message in normalize_messages(sent)] == ["user", "system", "system"]


@pytest.mark.parametrize("role", ["system", "user", "assistant", "tool"])
def test_text_parts_are_joined(role: str) -> None:
    parts = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]
    assert normalize(role=role, content=parts)["content"] == "one two"


def test_null_content_is_empty_text() -> None:
    assert normalize(role="assistant", content=None) == {"role": "assistant", "content": ""}
    assert normalize(role="assistant", tool_calls=[call("{}")])["content"] == ""
    assert normalize(role="tool", content=None, tool_call_id="c1")["content"] == ""


def test_extras_of_providers_are_dropped() -> None:
    assert normalize(role="assistant", content="a", refusal=None, audio=None, annotations=[], tool_calls=[]) == {
        "role": "assistant",
        "content": "a",
    }


def test_reasoning_is_understood_under_its_several_names() -> None:
    expected = {"role": "assistant", "content": "Seven.", "reasoning": "3 + 4"}
    assert normalize(role="assistant", content="Seven.", reasoning_content="3 + 4") == expected
    assert normalize(role="assistant", content="Seven.", reasoning="3 + 4") == expected
    assert normalize(role="assistant", content="<think>\n3 + 4\n</think>\n\nSeven.") == expected


def test_tool_calls_have_their_arguments_parsed() -> None:
    message = normalize(role="assistant", content=None, tool_calls=[call('{"path": "a"}'), call({"path": "b"})])
    assert [one["arguments"] for one in message["tool_calls"]] == [{"path": "a"}, {"path": "b"}]
    assert message["tool_calls"][0] == {"id": "c1", "name": "read", "arguments": {"path": "a"}}


def test_broken_arguments_in_history_stay_as_they_were_written() -> None:
    message = normalize(role="assistant", content=None, tool_calls=[call('{"path": "a')])
    assert message["tool_calls"][0]["arguments"] == '{"path": "a'


def test_functions_of_the_old_days() -> None:
    message = normalize(role="assistant", content=None, function_call={"name": "read", "arguments": "{}"})
    assert message["tool_calls"] == [{"id": "", "name": "read", "arguments": {}}]
    assert normalize(role="function", name="read", content="ok") == {"role": "tool", "content": "ok", "name": "read"}


def test_half_an_emoji_is_a_replacement_character() -> None:
    assert normalize(role="user", content="cut \ud83d")["content"] == "cut �"


def test_half_an_emoji_in_a_tool_or_an_argument_does_no_harm() -> None:
    tool = {"type": "function", "function": {"name": "read", "description": "cut \ud83d"}}
    chat = normalize_chat({"messages": [HELLO], "tools": [tool]})
    assert chat.tools[0]["function"]["description"] == "cut �"
    for arguments in ({"path": "cut \ud83d"}, '{"path": "cut \ud83d"}'):
        message = normalize(role="assistant", content=None, tool_calls=[call(arguments)])
        assert message["tool_calls"][0]["arguments"] == {"path": "cut �"}


def test_commands_that_were_put_into_one_message_with_other_words_stand_alone_again() -> None:
    texts = ["[Sun 2026-11-22 06:42 UTC] /Good", "/bad no, curt", "And ", "the ivy?", "/rl"]
    sent = {"role": "user", "content": [{"type": "text", "text": text} for text in texts], "name": "ann"}
    found = normalize_messages([sent, {"role": "assistant", "content": "Dry."}])
    assert [message["content"] for message in found] == [*texts[:2], "And the ivy?", "/rl", "Dry."]
    assert {message.get("name") for message in found[:4]} == {"ann"}


@pytest.mark.parametrize("parts", [["see ", "/tmp is full"], ["/describe this", " one"], ["a", "", "b"]])
def test_other_parts_that_begin_with_a_slash_stay_where_they_are(parts: list[str]) -> None:
    sent = {"role": "user", "content": [{"type": "text", "text": text} for text in parts]}
    assert [message["content"] for message in normalize_messages([sent])] == ["".join(parts)]


def test_empty_parts_next_to_a_command_are_dropped() -> None:
    sent = {"role": "user", "content": [{"type": "text", "text": text} for text in ("", "/good", " ")]}
    assert [message["content"] for message in normalize_messages([sent])] == ["/good"]


def test_odd_but_understandable_parts() -> None:
    parts = ["a", {"type": "input_text", "text": "b"}, {"type": "refusal", "refusal": "c"}]
    assert normalize(role="assistant", content=parts)["content"] == "abc"
    assert normalize(role="assistant", content=None, tool_calls=[call(None)])["tool_calls"][0]["arguments"] == {}


def test_tools_nested_beyond_reason_are_refused() -> None:
    deep: Any = {}
    for _ in range(5000):
        deep = {"items": deep}
    with pytest.raises(BadRequest, match="too deeply"):
        normalize_chat({"messages": [HELLO], "tools": [{"type": "function", "function": {"name": "a", "x": deep}}]})
    with pytest.raises(BadRequest, match="must be a string of JSON"):
        normalize(role="assistant", content=None, tool_calls=[call(deep)])


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        (None, "messages"),
        ("hello", "messages"),
        ([], "messages"),
        (["hello"], "messages[0]"),
        ([HELLO, {"role": "robot", "content": "x"}], "messages[1].role"),
        ([HELLO, {"content": "x"}], "messages[1].role"),
        ([HELLO, {"role": ["user"], "content": "x"}], "messages[1].role"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "user", "content": 42}], "messages[0].content"),
        ([{"role": "user", "content": {"text": "x"}}], "messages[0].content"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [{"type": "poem", "text": "x"}]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [7]}], "messages[0].content[0]"),
        ([{"role": "tool", "content": "x", "tool_call_id": 7}], "messages[0].tool_call_id"),
        ([{"role": "assistant", "tool_calls": {}}], "messages[0].tool_calls"),
        ([{"role": "assistant", "tool_calls": [{}]}], "messages[0].tool_calls[0]"),
        ([{"role": "assistant", "tool_calls": [call("{}", name=3)]}], "messages[0].tool_calls[0]"),
        ([{"role": "assistant", "tool_calls": [call(7)]}], "messages[0].tool_calls[0].function.arguments"),
    ],
)
def test_unusable_messages_are_refused_by_name(messages: Any, param: str) -> None:
    with pytest.raises(BadRequest) as refused:
        normalize_messages(messages)
    assert refused.value.status == 400
    assert refused.value.param == param
    assert str(refused.value).startswith(param.removesuffix(".role").removesuffix(".content"))


@pytest.mark.parametrize("kind", ["image_url", "input_image", "input_audio", "file"])
def test_a_model_that_does_not_see_refuses_images(kind: str) -> None:
    content = [{"type": "text", "text": "what is this"}, {"type": kind, kind: {"url": "data:image/png;base64,AA=="}}]
    with pytest.raises(BadRequest, match=r"messages\[1\].content\[1\] .* text only"):
        normalize_messages([HELLO, {"role": "user", "content": content}])


def test_a_model_that_sees_gets_the_images() -> None:
    image = {"type": "image_url", "image_url": {"url": data_url(picture(4, 2)), "detail": "low"}}
    content = [{"type": "text", "text": "what is this"}, image]
    (message,) = normalize_messages([{"role": "user", "content": content}], blind="")
    assert message["content"][1]["image_url"] == {"url": data_url(picture(4, 2))}
    assert text_of(message) == "what is this"
    with pytest.raises(BadRequest, match="must hold a url"):
        normalize_messages([{"role": "user", "content": [{"type": "image_url"}]}], blind="")
    with pytest.raises(BadRequest, match="image_url parts only"):
        normalize_messages([{"role": "user", "content": [{"type": "input_audio"}]}], blind="")


@pytest.mark.parametrize(
    ("choice", "forced", "offered"),
    [
        (None, "", True),
        ("auto", "", True),
        ("none", "", False),
        ("required", "read", True),
        ({"type": "function", "function": {"name": "read"}}, "read", True),
    ],
)
def test_tool_choice(choice: Any, forced: str, offered: bool) -> None:
    chat = normalize_chat({"messages": [HELLO], "tools": [TOOL], "tool_choice": choice})
    assert (chat.forced_tool, bool(chat.tools)) == (forced, offered)
    assert chat.tools == ([TOOL] if offered else [])
    assert bool(chat.tools_json) == offered


def test_of_several_tools_the_policy_chooses_which_one_it_must_call() -> None:
    tools = [TOOL, {"type": "function", "function": {"name": "write"}}]
    chat = normalize_chat({"messages": [HELLO], "tools": tools, "tool_choice": "required"})
    assert chat.forced_tool == ANY_TOOL


def test_parallel_calls_can_be_turned_off() -> None:
    assert normalize_chat({"messages": [HELLO]}).parallel_calls
    assert not normalize_chat({"messages": [HELLO], "parallel_tool_calls": False}).parallel_calls


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": {}}, "tools"),
        ({"tools": ["read"]}, "tools[0]"),
        ({"tools": [TOOL, {"type": "web_search"}]}, "tools[1]"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
        ({"tools": [{"type": "function"}]}, "tools[0].function.name"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": "sometimes"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "write"}}}, "tool_choice"),
        ({"parallel_tool_calls": "yes"}, "parallel_tool_calls"),
    ],
)
def test_tools_that_cannot_be_honoured_are_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as refused:
        normalize_chat({"messages": [HELLO], **fields})
    assert refused.value.param == param


def test_the_context_that_openclaw_appends_is_distinguished_from_the_users_words() -> None:
    text = "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\nSystem: noon\n<<<END_OPENCLAW_INTERNAL_CONTEXT>>>"
    assert is_internal_context(normalize(role="user", content=[{"type": "text", "text": text}]))
    assert not is_internal_context(normalize(role="user", content="What is " + text))
    assert not is_internal_context(normalize(role="assistant", content=text))
