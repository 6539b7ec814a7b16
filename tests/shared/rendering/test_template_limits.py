from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from openclaw_rl.shared.errors import BadRequest, ConfigError
from openclaw_rl.shared.rendering.chat_template import ChatTemplate
from openclaw_rl.shared.rendering.template_limits import (
    TemplateLimits,
    arguments_of,
    find_limits,
    fit_messages,
    positional_ids,
)
from tests.shared.tiny_tokenizers import CHATML

STRICT = """\
{%- for message in messages -%}
{%- if message.role == 'system' -%}{{ raise_exception('System role not supported') }}{%- endif -%}
{%- if (message.role == 'user') != (loop.index0 % 2 == 0) -%}{{ raise_exception('Roles must alternate') }}{%- endif -%}
{{ '<' + message.role + '>' + message.content + '</end>' }}
{%- endfor -%}
"""
DROPS_LATE_RULES = """\
{%- for message in messages -%}
{%- if message.role != 'system' or loop.first -%}{{ message.content }}|{%- endif -%}
{%- endfor -%}
"""
IN_PARTS = """\
{%- for message in messages -%}
{%- for part in message.content -%}{%- if part.type == 'text' -%}{{ part.text }}|{%- endif -%}{%- endfor -%}
{%- endfor -%}
"""
WITH_TOOLS = """\
{{ tools | tojson if tools }}
{%- for message in messages -%}
{{ message.content }}{%- for call in message.tool_calls or [] -%}{{ call.function | tojson }}{%- endfor -%}|
{%- endfor -%}
"""
SPELLED_ARGUMENTS = """\
{{ tools | tojson if tools }}
{%- for message in messages -%}{{ message.content }}
{%- for call in message.tool_calls or [] -%}{{ call.function.name + call.function.arguments }}{%- endfor -%}|
{%- endfor -%}
"""


def limits_of(source: str) -> TemplateLimits:
    template = ChatTemplate(source, {})
    return find_limits(lambda messages, tools: template.write(messages, tools), name="the model")


def says(role: str, content: str, **fields: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **fields}


rule, user, answer, tool = (partial(says, role) for role in ("system", "user", "assistant", "tool"))
CALL = {"id": "a", "name": "read", "arguments": {"path": "x"}}


def test_a_template_that_writes_all_is_given_all() -> None:
    found = limits_of(CHATML)
    assert (found.system, found.late_system, found.repeats, found.tools, found.calls) == (
        True,
        True,
        True,
        False,
        False,
    )
    assert found.closes.startswith("<|im_end|>")
    messages = [rule("a"), user("b"), user("c"), answer("d"), answer("e"), rule("f")]
    assert fit_messages(found, messages) == messages


def test_a_strict_template_is_given_alternating_messages() -> None:
    found = limits_of(STRICT)
    assert (found.system, found.late_system, found.repeats) == (False, False, False)
    messages = [rule("a"), user("b"), user("c"), answer("d"), answer("e"), rule("f"), rule("g"), user("h")]
    assert fit_messages(found, messages) == [user("a\n\nb\n\nc"), answer("d\n\ne"), user("f\n\ng\n\nh")]
    assert fit_messages(found, [rule("a")]) == [user("a")]
    assert fit_messages(found, [rule("a"), answer("b"), user("c"), rule("d")]) == [
        user("a"),
        answer("b"),
        user("c\n\nd"),
    ]


def test_a_message_that_a_template_would_drop_is_folded_in() -> None:
    found = limits_of(DROPS_LATE_RULES)
    assert (found.system, found.late_system, found.repeats) == (True, False, True)
    assert fit_messages(found, [rule("a"), user("b"), rule("c"), user("d")]) == [rule("a"), user("b"), user("c\n\nd")]


def test_merged_answers_keep_their_reasoning_and_calls() -> None:
    found = TemplateLimits(
        **{**{name: True for name in TemplateLimits.__struct_fields__}, "repeats": False, "closes": ""}
    )
    other = {**CALL, "id": "b"}
    first, second = answer("x", reasoning="r", tool_calls=[CALL]), answer("", reasoning="s", tool_calls=[other])
    merged = answer("x", reasoning="r\n\ns", tool_calls=[CALL, other])
    assert fit_messages(found, [user("a"), first, second, tool("1"), tool("2")]) == [
        user("a"),
        merged,
        tool("1"),
        tool("2"),
    ]


def test_a_template_for_parts_is_recognised() -> None:
    assert limits_of(IN_PARTS).parts
    assert not limits_of(CHATML).parts


def test_tools_and_earlier_calls_are_tried() -> None:
    found = limits_of(WITH_TOOLS)
    assert (found.tools, found.calls, found.spelled) == (True, True, False)
    found = limits_of(SPELLED_ARGUMENTS)
    assert (found.tools, found.calls, found.spelled) == (True, True, True)
    with pytest.raises(BadRequest, match="holds tool calls"):
        fit_messages(limits_of(CHATML), [user("a"), answer("", tool_calls=[CALL]), tool("b")])


def test_a_template_that_ignores_the_user_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"the model does not write what a user says.*family = plain"):
        limits_of("Hello")


def test_calls_are_numbered_by_their_position() -> None:
    calls = [{**CALL, "id": "call_3_0"}, {**CALL, "id": "x"}]
    assert positional_ids([user("a"), answer("", tool_calls=calls), tool("b", tool_call_id="x")]) == {
        "call_3_0": "call00000",
        "x": "call00001",
    }


def test_arguments_that_are_no_object_stay_readable() -> None:
    assert arguments_of(CALL, spelled=False) == {"path": "x"}
    assert arguments_of(CALL, spelled=True) == '{"path": "x"}'
    broken = {**CALL, "arguments": '{"path'}
    assert arguments_of(broken, spelled=False) == {"arguments": '{"path'}
    assert arguments_of(broken, spelled=True) == '{"path'
