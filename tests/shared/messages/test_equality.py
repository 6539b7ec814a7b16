from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_rl.shared.messages.equality import message_key, parse_arguments
from openclaw_rl.shared.messages.normalize import normalize_messages


def canonical(**fields: Any) -> dict[str, Any]:
    return normalize_messages([fields])[0]


def saying(text: str) -> dict[str, Any]:
    return canonical(role="assistant", content=text)


def assistant(arguments: Any, *, name: str = "read", call_id: str = "call_1", **fields: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    calls = [{"id": call_id, "type": "function", "function": function}]
    return canonical(role="assistant", content=fields.pop("content", None), tool_calls=calls, **fields)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (assistant('{"a": 1, "b": [2, 3]}'), assistant('{"b":[2,3],"a":1}')),
        (assistant("{}", call_id="call_3_0"), assistant("{}", call_id="call30")),
        (assistant("{}"), assistant("")),
        (assistant('{"n": 1.0, "big": 12345678901234567890}'), assistant('{"n":1,"big":12345678901234567000}')),
        (assistant('{"n": -0.0, "e": 1e3}'), assistant('{"n":0,"e":1000}')),
        (assistant("[1, 2]"), assistant("[1,2]")),
        (assistant("{}", reasoning_content="why"), assistant("{}", content="")),
        (canonical(role="assistant", content="fine\n"), canonical(role="assistant", content="fine", refusal=None)),
        (canonical(role="developer", content="be brief"), canonical(role="system", content="be brief")),
        (canonical(role="user", content="a b"), canonical(role="user", content=[{"type": "text", "text": "a b"}])),
        (
            canonical(role="tool", content="ok", tool_call_id="call_1_0"),
            canonical(role="tool", content="ok", tool_call_id="call10"),
        ),
    ],
)
def test_changes_of_clients_to_an_echo_leave_the_message_equal(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert message_key(one) == message_key(other)


@pytest.mark.parametrize(
    ("sampled", "echoed"),
    [
        ("<think>is it?</think>\nYes.", "Yes."),
        ("Yes. <think> It is <thinking>so.", "Yes. <think> It is so."),  # OpenClaw keeps the first that stays open
        ("Yes.</think> It is.", "Yes. It is."),
        ("A<think>b<think>c</think>d", "A"),
        ("A<think>b<think>c</think>d</think>e", "Ae"),
        ("A<mm:thought why='x'>b</mm:thought>c<think>d</think>", "Ac"),
    ],
)
def test_reasoning_written_into_an_answer_is_no_part_of_it(sampled: str, echoed: str) -> None:
    assert message_key(saying(sampled)) == message_key(saying(echoed))


@pytest.mark.parametrize("text", ["a <b> c", "a <thinker> c", "a < think", "<THINGS>"])
def test_other_angle_brackets_are(text: str) -> None:
    assert message_key(saying(text)) != message_key(saying(text.replace("<", "").replace(">", "")))
    assert message_key(canonical(role="user", content="<think>a</think>b")) != message_key(
        canonical(role="user", content="b")
    )


DIFFERENT = [
    canonical(role="user", content=""),
    canonical(role="user", content="a"),
    canonical(role="user", content="a "),
    canonical(role="system", content="a"),
    canonical(role="tool", content="a"),
    canonical(role="assistant", content="a"),
    canonical(role="assistant", content=""),
    assistant("{}"),
    assistant("{}", content="a"),
    assistant("{}", name="write"),
    assistant('{"a": 1}'),
    assistant('{"a": "1"}'),
    assistant('{"a": true}'),
    assistant('{"a": null}'),
    assistant('{"a": 1'),
    assistant("[]"),
    assistant('"[]"'),
    assistant('{"a": [1, 2]}'),
    assistant('{"a": [2, 1]}'),
]


def test_messages_that_say_something_else_have_other_keys() -> None:
    keys = {message_key(message) for message in DIFFERENT}
    assert len(keys) == len(DIFFERENT)
    assert {len(key) for key in keys} == {16}


@pytest.mark.parametrize(
    "text", ['{"a": 1', "{'a': 1}", '{"a": NaN}', '{"a": 1e999}', "[1]", "null", "[" * 5000, '{"a":' * 500]
)
def test_arguments_that_are_no_object_stay_the_text_they_are(text: str) -> None:
    assert parse_arguments(text) == text
    assert len(message_key(assistant(text))) == 16


@pytest.mark.parametrize("text", ["", "  ", "{}"])
def test_no_arguments_are_an_empty_object(text: str) -> None:
    assert parse_arguments(text) == {}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=8), JSON, max_size=5), st.randoms(use_true_random=False))
def test_key_order_and_spacing_never_matter(arguments: dict[str, Any], chance: Any) -> None:
    items = list(arguments.items())
    chance.shuffle(items)
    spaced = json.dumps(dict(items), indent=3)
    assert message_key(assistant(json.dumps(arguments))) == message_key(assistant(spaced))
