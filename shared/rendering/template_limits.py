"""The limits of a chat template, found by trying it, and messages made to fit them.

Many templates refuse a system message, one in the middle, or two messages of one role in a row; some drop without a
word what they do not know. Agents send all of that. So each template is tried once, at start, on small conversations;
what it cannot write is folded into what it can (a system text in front of the next user message, neighbours of one role
into one message), and what cannot be folded is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from openclaw_rl.shared.errors import BadRequest, ConfigError
from openclaw_rl.shared.records import Message

_ASKED, _SAID, _RULE, _NEXT, _DONE = "qzask", "qzsaid", "qzrule", "qznext", "qzdone"
_TOOL = {
    "type": "function",
    "function": {
        "name": "qztool",
        "description": "qzabout",
        "parameters": {"type": "object", "properties": {"qzpath": {"type": "string", "description": "qzwhere"}}},
    },
}

Write = Callable[[Sequence[Message], Sequence[dict[str, Any]]], str]
"""Writes messages and tools as text; raises `BadRequest` for what it refuses."""


class TemplateLimits(msgspec.Struct, frozen=True):
    """`system`, `late_system`: system messages at the start, and elsewhere; `repeats`: neighbours of one role; `parts`:
    content has to be a list of parts; `tools`: the tools of a request; `calls`: earlier calls and their results, and
    `spelled`: only with arguments as text; `mixed`: answers with reasoning, text and calls at once; `closes`: the text
    that follows an answer in the history; `sample`: a conversation with a call."""

    system: bool
    late_system: bool
    repeats: bool
    parts: bool
    tools: bool
    calls: bool
    spelled: bool
    mixed: bool
    closes: str
    sample: str


def find_limits(write: Write, *, name: str) -> TemplateLimits:
    """Tries a template, or whatever else writes prompts. Raises `ConfigError` for one that does not even write what a
    user says."""
    user, answer = _message("user", _ASKED), _message("assistant", _SAID)
    parts = False
    if not _writes(write, [user], _ASKED):
        parts = True
        if not _writes(write, [_in_parts(user)], _ASKED):
            raise ConfigError(
                f"The chat template of {name} does not write what a user says. Put a chat_template.jinja that does "
                "into the folder, or set family = plain."
            )

    def sent(*messages: Message) -> list[Message]:
        return [_in_parts(message) if parts else message for message in messages]

    def writes(*messages: Message) -> bool:
        return _writes(write, sent(*messages), *(str(message["content"]) for message in messages))

    def calls(message: Message) -> bool:
        return _writes(write, sent(user, message, result), _ASKED, "qztool", "qzfile", _DONE, tools=[_TOOL])

    rule, after = _message("system", _RULE), _message("user", _NEXT)
    call = {"id": "call00000", "type": "function", "function": {"name": "qztool", "arguments": {"qzpath": "qzfile"}}}
    calling = {**_message("assistant", ""), "tool_calls": [call]}
    spelled = {**calling, "tool_calls": [{**call, "function": {"name": "qztool", "arguments": '{"qzpath": "qzfile"}'}}]}
    result = {**_message("tool", _DONE), "tool_call_id": "call00000", "name": "qztool"}
    as_objects = calls(calling)
    called = calling if as_objects else spelled
    thought = {**called, "content": _SAID, **dict.fromkeys(("reasoning_content", "reasoning", "thinking"), _NEXT)}
    return TemplateLimits(
        system=writes(rule, user),
        late_system=writes(user, answer, rule, after),
        repeats=writes(user, after) and writes(user, answer, _message("assistant", _DONE), after),
        parts=parts,
        tools=_writes(write, sent(user), _ASKED, "qztool", "qzabout", tools=[_TOOL]),
        calls=as_objects or calls(spelled),
        spelled=not as_objects,
        mixed=_writes(write, sent(user, thought, result), _SAID, "qzfile", tools=[_TOOL]),
        closes=_written(write, sent(user, answer, after)).partition(_SAID)[2],
        sample=_written(write, sent(user, called, result), [_TOOL]),
    )


def fit_messages(limits: TemplateLimits, messages: Sequence[Message]) -> list[Message]:
    """The messages as the template can write them. Raises `BadRequest` for what cannot be folded into anything."""
    if not limits.calls and any(message["role"] == "tool" or message.get("tool_calls") for message in messages):
        raise BadRequest(
            "The chat template of this model has no tools, but the conversation holds tool calls or their results. "
            "Start a conversation without tools, or serve a model that takes them.",
            param="messages",
            code="unsupported_value",
        )
    if not limits.mixed:
        messages = [_thought_through(message) for message in messages]
    folded = _without_system(limits, messages)
    return folded if limits.repeats else _merged(folded)


def _thought_through(message: Message) -> Message:
    """The message with its text at the end of its reasoning, if it has both and calls: gpt-oss's template refuses it
    otherwise, and writes text before a call as reasoning."""
    if not (message.get("reasoning") and message["content"] and message.get("tool_calls")):
        return message
    return {**message, "reasoning": f"{message['reasoning']}\n\n{message['content']}", "content": ""}


def _without_system(limits: TemplateLimits, messages: Sequence[Message]) -> list[Message]:
    """System messages that cannot be written become the beginning of the next user message, or one of their own."""
    if limits.system and limits.late_system:
        return list(messages)
    changed: list[Message] = []
    waiting: list[str] = []
    for index, message in enumerate(messages):
        if message["role"] == "system" and not (limits.system and index == 0):
            waiting.append(message["content"])
            continue
        if waiting and message["role"] == "user":
            changed.append({**message, "content": join_contents(*waiting, message["content"])})
            waiting = []
            continue
        if waiting and message["role"] == "assistant":
            changed.append({"role": "user", "content": join_contents(*waiting)})
            waiting = []
        changed.append(message)
    if waiting:
        changed.append({"role": "user", "content": join_contents(*waiting)})
    return changed


def _merged(messages: Sequence[Message]) -> list[Message]:
    """Neighbouring user messages, and neighbouring answers, as one; results of parallel calls stay apart."""
    changed: list[Message] = []
    for message in messages:
        before = changed[-1] if changed else None
        if before is None or before["role"] != message["role"] or message["role"] not in ("user", "assistant"):
            changed.append(message)
            continue
        merged = {**before, **message, "content": join_contents(before["content"], message["content"])}
        if reasoning := join_contents(before.get("reasoning", ""), message.get("reasoning", "")):
            merged["reasoning"] = reasoning
        if calls := [*before.get("tool_calls", ()), *message.get("tool_calls", ())]:
            merged["tool_calls"] = calls
        changed[-1] = merged
    return changed


def join_contents(*contents: Any, by: str = "\n\n") -> Any:
    """Texts as one with `by` between them, by default an empty line; among contents that hold images, a list of
    parts."""
    if all(isinstance(content, str) for content in contents):
        return by.join(filter(None, contents))
    parts: list[dict[str, Any]] = []
    for content in filter(None, contents):
        added = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
        if parts and parts[-1]["type"] == added[0]["type"] == "text":
            added[0] = {"type": "text", "text": f"{parts.pop()['text']}{by}{added[0]['text']}"}
        parts += added
    return parts


def _message(role: str, content: str) -> Message:
    return {"role": role, "content": content}


def _in_parts(message: Message) -> Message:
    return {**message, "content": [{"type": "text", "text": message["content"]}]}


def _writes(write: Write, messages: Sequence[Message], *expected: str, tools: Sequence[dict[str, Any]] = ()) -> bool:
    text = _written(write, messages, tools)
    return all(one in text for one in expected)


def _written(write: Write, messages: Sequence[Message], tools: Sequence[dict[str, Any]] = ()) -> str:
    """The text of a conversation, "" where it is refused."""
    try:
        return write(messages, tools)
    except BadRequest:
        return ""


CALL_ID = "call{number:05d}"


def positional_ids(messages: Sequence[Message], form: str = CALL_ID) -> dict[str, str]:
    """New ids for the calls of a conversation, by the old ones: `call00000` and so on, in order, or after another
    `form` with `{name}` and `{number}`. Clients rewrite ids between requests, and some templates write them (Mistral's
    wants nine letters or digits, Kimi's the tool's name): by position they are the same every time."""
    ids: dict[str, str] = {}
    for message in messages:
        for call in message.get("tool_calls") or ():
            ids.setdefault(call["id"], form.format(name=call["name"], number=len(ids)))
    return ids


def arguments_of(call: dict[str, Any], *, spelled: bool) -> dict[str, Any] | str:
    """A call's arguments as a template takes them. What a model wrote that is no JSON object stays readable."""
    arguments: dict[str, Any] | str = call["arguments"]
    if spelled:
        return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {"arguments": arguments} if isinstance(arguments, str) else arguments
