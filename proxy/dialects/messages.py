"""`/v1/messages` (docs.anthropic.com, Messages API): what LiteLLM's adapter needs, and what it leaves to be done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from openclaw_rl.proxy.dialects.dialect import (
    MODEL,
    AdapterArguments,
    Dialect,
    DialectWriter,
    check_fields,
    check_tool,
    copied,
    event_bytes,
    forced_server_tool,
    left_out_header,
    listed,
    refuse,
    require,
    streams,
)
from openclaw_rl.proxy.dialects.errors import anthropic_error
from openclaw_rl.proxy.dialects.headers import PROMPT_HEADER, TURN_HEADER, turn_digits
from openclaw_rl.proxy.http.body import METADATA
from openclaw_rl.shared.errors import RequestError

_BLOCKS = {
    "user": ("text", "image", "tool_result"),
    "assistant": ("text", "tool_use", "thinking", "redacted_thinking"),
    "system": ("text",),
    "tool_result": ("text", "image", "tool_reference"),
}
_TEXTS = {
    "text": ("text",),
    "thinking": ("thinking",),
    "tool_reference": ("tool_name",),
    "tool_result": ("tool_use_id",),
    "tool_use": ("id", "name"),
}
_SOURCES = {"base64": ("media_type", "data"), "url": ("url",)}
_CLIENT_TOOLS = (None, "custom")
_CHOICES = ("auto", "any", "tool", "none")


def read_messages(body: Mapping[str, Any]) -> AdapterArguments:
    """A request in Anthropic's dialect. Raises `BadRequest`."""
    messages, loaded = _spell_out_references(_messages(body.get("messages")))
    arguments: dict[str, Any] = {"model": MODEL, "max_tokens": 1, "messages": messages}
    for field in ("mcp_servers", "container"):
        require(not body.get(field), f"{field} is not supported: the model runs no tools of its own.", field)
    if body.get("system"):
        _check_content(body["system"], "system", "system")
        arguments["system"] = body["system"]
    extra = copied(body, "model", "max_tokens", "temperature", "top_p", "top_k", *METADATA, stop_sequences="stop")
    tools, left_out = _offered(body)
    choice = body.get("tool_choice")
    forced = isinstance(choice, dict) and choice.get("type") in ("any", "tool")
    require(not (left_out and forced), forced_server_tool(left_out), "tool_choice", "unsupported_value")
    if tools:
        for index, tool in enumerate(body["tools"]):
            if tool.get("type") in _CLIENT_TOOLS:
                check_tool(tool, f"tools[{index}]", "input_schema", dict)
        tools = [tool for tool in tools if not tool.get("defer_loading") or tool["name"] in loaded]
    if tools:
        arguments["tools"] = tools
    choice = _tool_choice(choice, bool(tools))
    if choice is not None:
        arguments["tool_choice"] = choice
        extra["parallel_tool_calls"] = choice.get("disable_parallel_tool_use") is not True
    extra |= _thinking(body.get("thinking")) | _format(body) | _tool_errors(messages)
    return AdapterArguments(arguments=arguments, extra=extra, stream=streams(body))


class MessagesWriter(DialectWriter):
    """Writes the events, or the one message, of an answer."""

    @property
    def headers(self) -> dict[str, str]:
        return left_out_header(_offered(self._body)[1])

    def event(self, event: Any) -> bytes:
        """LiteLLM gives bytes, one or more events at once."""
        text = event.decode() if isinstance(event, bytes) else str(event)
        return b"".join(self._event(block) for block in text.split("\n\n") if block.strip())

    def failure(self, error: RequestError) -> bytes:
        return event_bytes(anthropic_error(error))

    def whole(self, result: Any) -> dict[str, Any]:
        message = dict(result)
        blocks = [{name: value for name, value in block.items() if value is not None} for block in message["content"]]
        return {**self._head(), "content": blocks, **self._end(message.get("stop_reason")), "usage": self._usage()}

    def _event(self, block: str) -> bytes:
        data = next((line[5:] for line in block.split("\n") if line.startswith("data:")), "")
        if not data.strip():
            return b""
        content: dict[str, Any] = msgspec.json.decode(data)
        kind = content["type"]
        self.ended = self.ended or kind == "message_stop"
        if kind == "message_start":
            usage = {"input_tokens": int(self._call.response_headers.get(PROMPT_HEADER, "0")), "output_tokens": 0}
            content["message"] = {
                **self._head(), "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage,
            }  # fmt: skip
        elif kind == "message_delta":
            content["delta"] = self._end((content.get("delta") or {}).get("stop_reason"))
            content["usage"] = self._usage()
        return event_bytes(content)

    def _head(self) -> dict[str, Any]:
        digits = turn_digits(self._call.response_headers.get(TURN_HEADER, ""))
        model = self._call.extra.get("model") or "policy"
        return {"id": f"msg_{digits}", "type": "message", "role": "assistant", "model": model}

    def _end(self, reason: Any) -> dict[str, Any]:
        matched = self._call.stop_reason
        if matched is not None and reason == "end_turn":
            return {"stop_reason": "stop_sequence", "stop_sequence": matched}
        return {"stop_reason": reason or "end_turn", "stop_sequence": None}

    def _usage(self) -> dict[str, Any]:
        """Anthropic counts cached tokens separately."""
        usage = self._call.usage
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
        return {
            "input_tokens": usage.get("prompt_tokens", 0) - cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": cached,
            "output_tokens": usage.get("completion_tokens", 0),
        }


MESSAGES = Dialect(
    read_messages,
    "anthropic_messages",
    MessagesWriter,
    {"stop": "stop_sequences", "response_format": "output_config.format"},
)


def _offered(body: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
    """The tools of the client, and the types of those that have no schema here, as a server knows them."""
    tools = listed(body.get("tools") or [], "tools")
    ours = [tool for tool in tools if tool.get("type") in _CLIENT_TOOLS]
    return ours, [str(tool["type"]) for tool in tools if tool.get("type") not in _CLIENT_TOOLS]


def _messages(value: Any) -> list[dict[str, Any]]:
    messages = listed(value, "messages")
    require(bool(messages), "messages is empty: send at least one message.", "messages")
    for index, message in enumerate(messages):
        where, role = f"messages[{index}]", str(message.get("role"))
        known = role in ("user", "assistant", "system")
        require(known, f"{where}.role must be 'user' or 'assistant'.", f"{where}.role")
        _check_content(message.get("content"), f"{where}.content", role)
        content = message["content"]
        texts = [content] if isinstance(content, str) else [block.get("text", block["type"]) for block in content]
        said = role != "user" or any(texts)  # LiteLLM would leave out an empty message in silence
        require(said, f"{where}.content is empty.", f"{where}.content")
    begun = "The conversation must end with a user message: answers cannot be begun for the model."
    require(messages[-1]["role"] != "assistant", begun, "messages")
    return messages


def _spell_out_references(messages: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], set[str]]:
    """The messages with `tool_reference` blocks, the results of the client's tool search, as text; and the names of
    these tools: before that, a tool with `defer_loading` is not offered to the model.
    """
    loaded: set[str] = set()

    def spell_out(content: Any) -> Any:
        if not isinstance(content, list):
            return content
        blocks = []
        for block in content:
            if block["type"] == "tool_reference":
                loaded.add(block["tool_name"])
                block = {"type": "text", "text": f"Tool found: {block['tool_name']}\n"}
            elif block["type"] == "tool_result":
                block = {**block, "content": spell_out(block.get("content"))}
            blocks.append(block)
        return blocks

    return [{**message, "content": spell_out(message["content"])} for message in messages], loaded


def _tool_errors(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """The marks of the tool results, by call id, for the chat route: LiteLLM's adapter drops them."""
    marks = {
        block["tool_use_id"]: block["is_error"]
        for message in messages
        for block in (message["content"] if isinstance(message["content"], list) else ())
        if block["type"] == "tool_result" and isinstance(block.get("is_error"), bool)
    }
    return {"tool_errors": marks} if marks else {}


def _check_content(content: Any, where: str, holder: str) -> None:
    if isinstance(content, str):
        return
    for index, block in enumerate(listed(content, where)):
        at, kind = f"{where}[{index}]", block.get("type")
        if kind not in _BLOCKS[holder]:
            taken = ", ".join(sorted(_BLOCKS[holder]))
            raise refuse(f"{at} has type {kind!r}; served here are {taken}.", f"{at}.type", "unsupported_value")
        check_fields(block, at, str, *_TEXTS.get(kind, ()))
        if kind == "image":
            check_fields(block, at, dict, "source")
            _check_source(block["source"], f"{at}.source")
        if kind == "tool_use" and "input" in block:
            check_fields(block, at, dict, "input")
        if kind == "tool_result" and block.get("content") is not None:
            _check_content(block["content"], f"{at}.content", "tool_result")


def _check_source(source: Mapping[str, Any], where: str) -> None:
    """Refuse an image that the adapter would drop without a word."""
    kind = source.get("type")
    if not isinstance(kind, str) or kind not in _SOURCES:
        taken = " or ".join(_SOURCES)
        raise refuse(
            f"{where}.type is {kind!r}; served here is {taken}. A file that was uploaded to a provider is not here: "
            "send the image itself.",
            f"{where}.type",
            "unsupported_value",
        )
    check_fields(source, where, str, *_SOURCES[kind])


def _tool_choice(choice: Any, has_tools: bool) -> dict[str, Any] | None:
    """The choice for LiteLLM's adapter, `None` without tools."""
    if choice is None:
        return None
    if not isinstance(choice, dict) or choice.get("type") not in _CHOICES:
        raise refuse("tool_choice must be an object of type auto, any, tool or none.", "tool_choice")
    if choice["type"] == "tool":
        check_fields(choice, "tool_choice", str, "name")
    if not has_tools and choice["type"] in ("any", "tool"):
        raise refuse(f"tool_choice is {choice['type']!r}, but the request has no tools.", "tool_choice")
    return choice if has_tools else None


def _thinking(value: Any) -> dict[str, Any]:
    """`thinking` as the chat route's template setting; without it, or with `adaptive`, the policy's default."""
    match value:
        case None | {"type": "adaptive"}:
            return {}
        case {"type": "enabled" | "disabled" as kind}:
            return {"chat_template_kwargs": {"enable_thinking": kind == "enabled"}}
    raise refuse("thinking.type must be 'enabled', 'disabled' or 'adaptive'.", "thinking.type")


def _format(body: Mapping[str, Any]) -> dict[str, Any]:
    """`output_config.format` (or the older `output_format`) as the chat route's `response_format`."""
    config = body.get("output_config") or {}
    form = (config.get("format") if isinstance(config, dict) else None) or body.get("output_format")
    if form is None:
        return {}
    if not isinstance(form, dict) or form.get("type") != "json_schema" or not isinstance(form.get("schema"), dict):
        raise refuse("output_config.format must be {'type': 'json_schema', 'schema': {...}}.", "output_config.format")
    schema = {"name": "output", "schema": form["schema"], "strict": True}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}
