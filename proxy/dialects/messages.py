"""`/v1/messages` (docs.anthropic.com, Messages API): what LiteLLM's adapter needs, and what it leaves to be done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from openclaw_rl.proxy.dialects.dialect import MODEL, Ask, copied, listed, refuse, streams
from openclaw_rl.proxy.dialects.errors import anthropic_event
from openclaw_rl.proxy.dialects.headers import PROMPT_HEADER, TURN_HEADER, turn_digits
from openclaw_rl.shared.errors import RequestError
from openclaw_rl.shared.litellm.call import Call

_BLOCKS = {
    "user": ("text", "image", "tool_result"),
    "assistant": ("text", "tool_use", "thinking", "redacted_thinking"),
    "system": ("text",),
    "tool_result": ("text", "image", "tool_reference"),
}
_CHOICES = ("auto", "any", "tool", "none")


class Messages:
    """The dialect."""

    name = "messages"
    parameters: Mapping[str, str] = {"stop": "stop_sequences", "response_format": "output_config.format"}

    def read(self, body: Mapping[str, Any]) -> Ask:
        """See `Dialect.read`."""
        messages, loaded = _told(_messages(body.get("messages")))
        arguments: dict[str, Any] = {"model": MODEL, "max_tokens": 1, "messages": messages}
        for field in ("mcp_servers", "container"):
            if body.get(field):
                raise refuse(f"{field} is not supported: the model runs no tools of its own.", field)
        if body.get("system"):
            _check_content(body["system"], "system", "system")
            arguments["system"] = body["system"]
        extra = copied(
            body,
            "model",
            "max_tokens",
            "temperature",
            "top_p",
            "top_k",
            "metadata",
            stop_sequences="stop",
        )
        tools, choice = body.get("tools"), body.get("tool_choice")
        if tools:
            _check_tools(tools)
            tools = [tool for tool in tools if not tool.get("defer_loading") or tool["name"] in loaded]
        if tools:
            arguments["tools"] = tools
        if choice is not None:
            if not isinstance(choice, dict) or choice.get("type") not in _CHOICES:
                raise refuse("tool_choice must be an object of type auto, any, tool or none.", "tool_choice")
            if choice["type"] == "tool" and not isinstance(choice.get("name"), str):
                raise refuse("tool_choice.name is missing.", "tool_choice.name")
            if tools:
                arguments["tool_choice"] = choice
                extra["parallel_tool_calls"] = choice.get("disable_parallel_tool_use") is not True
            elif choice["type"] in ("any", "tool"):
                raise refuse(f"tool_choice is {choice['type']!r}, but the request has no tools.", "tool_choice")
        extra |= _thinking(body.get("thinking")) | _format(body)
        return Ask(arguments=arguments, extra=extra, stream=streams(body))

    async def ask(self, library: Any, ask: Ask) -> Any:
        """See `Dialect.ask`."""
        return await library.anthropic_messages(stream=ask.stream, **ask.arguments)

    def writer(self, body: Mapping[str, Any], call: Call) -> MessagesWriter:
        """See `Dialect.writer`."""
        return MessagesWriter(call)


class MessagesWriter:
    """Writes the events, or the one message, of an answer."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self.ended = False

    def event(self, event: Any) -> bytes:
        """See `Writer.event`; LiteLLM gives bytes, one or more events at once."""
        text = event.decode() if isinstance(event, bytes) else str(event)
        return b"".join(self._one(block) for block in text.split("\n\n") if block.strip())

    def failure(self, error: RequestError) -> bytes:
        """See `Writer.failure`."""
        return anthropic_event(error)

    def whole(self, result: Any) -> dict[str, Any]:
        """See `Writer.whole`."""
        made = dict(result)
        return {
            **self._head(),
            "content": [
                {name: value for name, value in block.items() if value is not None} for block in made["content"]
            ],
            **self._end(made.get("stop_reason")),
            "usage": self._usage(),
        }

    def _one(self, block: str) -> bytes:
        data = next((line[5:] for line in block.split("\n") if line.startswith("data:")), "")
        if not data.strip():
            return b""
        content: dict[str, Any] = msgspec.json.decode(data)
        kind = str(content["type"])
        self.ended = self.ended or kind == "message_stop"
        if kind == "message_start":
            prompt = self._call.response_headers.get(PROMPT_HEADER, "0")
            usage = {"input_tokens": int(prompt), "output_tokens": 0}
            content["message"] = {
                **self._head(), "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage,
            }  # fmt: skip
        elif kind == "message_delta":
            content["delta"] = self._end((content.get("delta") or {}).get("stop_reason"))
            content["usage"] = self._usage()
        return b"event: " + kind.encode() + b"\ndata: " + msgspec.json.encode(content) + b"\n\n"

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
        """Anthropic counts cached tokens apart."""
        told = self._call.usage
        cached = (told.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
        return {
            "input_tokens": told.get("prompt_tokens", 0) - cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": cached,
            "output_tokens": told.get("completion_tokens", 0),
        }


def _messages(value: Any) -> list[dict[str, Any]]:
    messages = listed(value, "messages")
    if not messages:
        raise refuse("messages is empty: send at least one message.", "messages")
    for index, message in enumerate(messages):
        where, role = f"messages[{index}]", message.get("role")
        if role not in ("user", "assistant", "system"):
            raise refuse(f"{where}.role must be 'user' or 'assistant'.", f"{where}.role")
        _check_content(message.get("content"), f"{where}.content", role)
        if role == "user" and _is_empty(message["content"]):  # LiteLLM would leave it out without a word
            raise refuse(f"{where}.content is empty.", f"{where}.content")
    if messages[-1]["role"] == "assistant":
        raise refuse(
            "The conversation must end with a user message: answers cannot be begun for the model.", "messages"
        )
    return messages


def _is_empty(content: str | list[dict[str, Any]]) -> bool:
    if isinstance(content, str):
        return not content
    return all(block["type"] == "text" and not block["text"] for block in content)


def _told(messages: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], set[str]]:
    """The messages with the tools that a search of the client's found (`tool_reference`) told in words, and the names
    of these tools: until then a tool with `defer_loading` is not offered to the model.
    """
    loaded: set[str] = set()

    def told(content: Any) -> Any:
        if not isinstance(content, list):
            return content
        blocks = []
        for block in content:
            if block["type"] == "tool_reference":
                loaded.add(block["tool_name"])
                block = {"type": "text", "text": f"Tool found: {block['tool_name']}\n"}
            elif block["type"] == "tool_result":
                block = {**block, "content": told(block.get("content"))}
            blocks.append(block)
        return blocks

    return [{**message, "content": told(message["content"])} for message in messages], loaded


def _check_content(content: Any, where: str, holder: str) -> None:
    if isinstance(content, str):
        return
    for index, block in enumerate(listed(content, where)):
        at, kind = f"{where}[{index}]", block.get("type")
        if kind not in _BLOCKS[holder]:
            taken = ", ".join(sorted(_BLOCKS[holder]))
            raise refuse(f"{at} has type {kind!r}; served here are {taken}.", f"{at}.type", "unsupported_value")
        if kind in ("text", "thinking") and not isinstance(block.get(kind), str):
            raise refuse(f"{at}.{kind} must be a string.", f"{at}.{kind}")
        if kind == "image" and not isinstance(block.get("source"), dict):
            raise refuse(f"{at}.source must be an object.", f"{at}.source")
        if kind == "tool_reference" and not isinstance(block.get("tool_name"), str):
            raise refuse(f"{at}.tool_name must be a string.", f"{at}.tool_name")
        if kind == "tool_use":
            if not isinstance(block.get("id"), str) or not isinstance(block.get("name"), str):
                raise refuse(f"{at} must have an id and a name.", at)
            if not isinstance(block.get("input", {}), dict):
                raise refuse(f"{at}.input must be an object.", f"{at}.input")
        if kind == "tool_result":
            if not isinstance(block.get("tool_use_id"), str):
                raise refuse(f"{at}.tool_use_id must be a string.", f"{at}.tool_use_id")
            if block.get("content") is not None:
                _check_content(block["content"], f"{at}.content", "tool_result")


def _check_tools(tools: Any) -> None:
    for index, tool in enumerate(listed(tools, "tools")):
        where = f"tools[{index}]"
        if tool.get("type") not in (None, "custom"):
            raise refuse(
                f"{where} has type {tool['type']!r}: tools that run on the server are not available; leave it out.",
                f"{where}.type",
                "unsupported_value",
            )
        if not isinstance(tool.get("name"), str) or not tool["name"]:
            raise refuse(f"{where}.name is missing.", f"{where}.name")
        if not isinstance(tool.get("input_schema"), dict):
            raise refuse(f"{where}.input_schema must be an object.", f"{where}.input_schema")


def _thinking(value: Any) -> dict[str, Any]:
    """`thinking` as the chat route's template setting; without it, or with `adaptive`, the policy's own default."""
    if value is None:
        return {}
    kind = value.get("type") if isinstance(value, dict) else None
    if kind not in ("enabled", "disabled", "adaptive"):
        raise refuse("thinking.type must be 'enabled', 'disabled' or 'adaptive'.", "thinking.type")
    return {} if kind == "adaptive" else {"chat_template_kwargs": {"enable_thinking": kind == "enabled"}}


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
