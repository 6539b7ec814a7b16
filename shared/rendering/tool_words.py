"""Tools in words: a conversation with tools, for a chat template that has no place for them.

The form is Hermes': the tools as JSON schemas between `<tools>` tags at the end of the system text, a call as a JSON
object between `<tool_call>` tags in an answer, results between `<tool_response>` tags in a user message. A call in the
history is written as the instructions ask for it, so it has the text that was sampled.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from openclaw_rl.shared.records import Message
from openclaw_rl.shared.rendering.families import HERMES, Grammar
from openclaw_rl.shared.rendering.template_limits import arguments_of, join_contents

_INSTRUCTIONS = """\
# Tools

You can call these tools. Their JSON schemas:
<tools>
{schemas}
</tools>

To call a tool, write its name and its arguments as one JSON object between these tags, once for each call:
<tool_call>
{{"name": "TOOL", "arguments": {{"PARAMETER": "VALUE"}}}}
</tool_call>
The next message brings the results between <tool_response> tags. If you need no tool, answer in plain text."""


def words_grammar(grammar: Grammar, controls: Collection[str]) -> Grammar:
    """The grammar of answers to `write_in_words`, with the reasoning and the stops of `grammar`. The tags of a call are
    control tokens where the vocabulary has them, and plain text elsewhere."""
    return msgspec.structs.replace(
        grammar,
        call_open=HERMES.call_open,
        call_close=HERMES.call_close,
        calls=HERMES.calls,
        arguments=HERMES.arguments,
        spelled=not {HERMES.call_open, HERMES.call_close} <= set(controls),
    )


def write_in_words(messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> list[Message]:
    """The conversation in messages of the system, the user and the assistant, without tool calls.

    Takes texts that are protected already: the tags are not, and become control tokens where they are some.
    """
    written: list[Message] = []
    after_result = False  # whether the last message holds results
    for message in messages:
        if message["role"] == "tool":
            result = _tagged("tool_response", message["content"])
            if after_result:
                written[-1] = {**written[-1], "content": join_contents(written[-1]["content"], result, by="\n")}
            else:
                written.append({"role": "user", "content": result})
        else:
            written.append(_with_calls(message))
        after_result = message["role"] == "tool"
    if not tools:
        return written
    schemas = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    instructions = _INSTRUCTIONS.format(schemas=schemas)
    if written[0]["role"] != "system":
        return [{"role": "system", "content": instructions}, *written]
    return [{**written[0], "content": join_contents(written[0]["content"], instructions)}, *written[1:]]


def _with_calls(message: Message) -> Message:
    """The message with its calls at the end of its text."""
    calls = message.get("tool_calls")
    if not calls:
        return message
    texts = [_tagged("tool_call", _call_json(call)) for call in calls]
    kept = {key: value for key, value in message.items() if key != "tool_calls"}
    return {**kept, "content": join_contents(message["content"], *texts, by="\n")}


def _call_json(call: dict[str, Any]) -> str:
    name = json.dumps(call["name"], ensure_ascii=False)
    return f'{{"name": {name}, "{HERMES.arguments}": {arguments_of(call, spelled=True)}}}'


def _tagged(tag: str, content: Any) -> Any:
    """The content between tags, each on a line of its own; images stay where they are."""
    return join_contents(f"<{tag}>\n", content, f"\n</{tag}>", by="")
