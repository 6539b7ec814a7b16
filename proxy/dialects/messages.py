"""`/v1/messages` (docs.anthropic.com, Messages API): what LiteLLM's adapter needs, and what it leaves to be done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from openclaw_rl.proxy.dialects.dialect import MODEL, AdapterArguments, copied, listed, refuse, require, streams
from openclaw_rl.proxy.dialects.errors import anthropic_event
from openclaw_rl.proxy.dialects.headers import PROMPT_HEADER, TURN_HEADER, turn_digits
from openclaw_rl.shared.errors import RequestError
from openclaw_rl.shared.litellm.call import LiteLLMCall

_BLOCKS = {
    "user": ("text", "image", "tool_result"),
    "assistant": ("text", "tool_use", "thinking", "redacted_thinking"),
    "system": ("text",),
    "tool_result": ("text", "image", "tool_reference"),
}
_CHOICES = ("auto", "any", "tool", "none")


class Messages:
    """Anthropic's dialect."""

    parameters: Mapping[str, str] = {"stop": "stop_sequences", "response_format": "output_config.format"}

    def read(self, body: Mapping[str, Any]) -> AdapterArguments:
        messages, loaded = _spell_out_references(_messages(body.get("messages")))
        arguments: dict[str, Any] = {"model": MODEL, "max_tokens": 1, "messages": messages}
        for field in ("mcp_servers", "container"):
            require(not body.get(field), f"{field} is not supported: the model runs no tools of its own.", field)
        if body.get("system"):
            _check_content(body["system"], "system", "system")
            arguments["system"] = body["system"]
        extra = copied(body, "model", "max_tokens", "temperature", "top_p", "top_k", "metadata", stop_sequences="stop")
        tools = body.get("tools")
        if tools:
            _check_tools(tools)
            tools = [tool for tool in tools if not tool.get("defer_loading") or tool["name"] in loaded]
        if tools:
            arguments["tools"] = tools
        choice = _tool_choice(body.get("tool_choice"), bool(tools))
        if choice is not None:
            arguments["tool_choice"] = choice
            extra["parallel_tool_calls"] = choice.get("disable_parallel_tool_use") is not True
        extra |= _thinking(body.get("thinking")) | _format(body)
        return AdapterArguments(arguments=arguments, extra=extra, stream=streams(body))

    async def ask(self, library: Any, arguments: AdapterArguments) -> Any:
        return await library.anthropic_messages(stream=arguments.stream, **arguments.arguments)

    def writer(self, body: Mapping[str, Any], call: LiteLLMCall) -> MessagesWriter:
        return MessagesWriter(call)


class MessagesWriter:
    """Writes the events, or the one message, of an answer."""

    def __init__(self, call: LiteLLMCall) -> None:
        self._call = call
        self.ended = False

    def event(self, event: Any) -> bytes:
        """LiteLLM gives bytes, one or more events at once."""
        text = event.decode() if isinstance(event, bytes) else str(event)
        return b"".join(self._event(block) for block in text.split("\n\n") if block.strip())

    def failure(self, error: RequestError) -> bytes:
        return anthropic_event(error)

    def whole(self, result: Any) -> dict[str, Any]:
        message = dict(result)
        blocks = [{name: value for name, value in block.items() if value is not None} for block in message["content"]]
        return {**self._head(), "content": blocks, **self._end(message.get("stop_reason")), "usage": self._usage()}

    def _event(self, block: str) -> bytes:
        data = next((line[5:] for line in block.split("\n") if line.startswith("data:")), "")
        if not data.strip():
            return b""
        content: dict[str, Any] = msgspec.json.decode(data)
        kind = str(content["type"])
        self.ended = self.ended or kind == "message_stop"
        if kind == "message_start":
            usage = {"input_tokens": int(self._call.response_headers.get(PROMPT_HEADER, "0")), "output_tokens": 0}
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
        """Anthropic counts cached tokens separately."""
        usage = self._call.usage
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
        return {
            "input_tokens": usage.get("prompt_tokens", 0) - cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": cached,
            "output_tokens": usage.get("completion_tokens", 0),
        }


def _messages(value: Any) -> list[dict[str, Any]]:
    messages = listed(value, "messages")
    require(bool(messages), "messages is empty: send at least one message.", "messages")
    for index, message in enumerate(messages):
        where, role = f"messages[{index}]", message.get("role")
        if role not in ("user", "assistant", "system"):
            raise refuse(f"{where}.role must be 'user' or 'assistant'.", f"{where}.role")
        _check_content(message.get("content"), f"{where}.content", role)
        if role == "user" and _is_empty(message["content"]):  # LiteLLM would leave it out in silence
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


def _spell_out_references(messages: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], set[str]]:
    """The messages with `tool_reference` blocks, the results of the client's tool search, in words; and the names of
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


def _check_content(content: Any, where: str, holder: str) -> None:
    if isinstance(content, str):
        return
    for index, block in enumerate(listed(content, where)):
        at, kind = f"{where}[{index}]", block.get("type")
        if kind not in _BLOCKS[holder]:
            taken = ", ".join(sorted(_BLOCKS[holder]))
            raise refuse(f"{at} has type {kind!r}; served here are {taken}.", f"{at}.type", "unsupported_value")
        texts = {"text": "text", "thinking": "thinking", "tool_reference": "tool_name", "tool_result": "tool_use_id"}
        if kind in texts:
            field = texts[kind]
            require(isinstance(block.get(field), str), f"{at}.{field} must be a string.", f"{at}.{field}")
        if kind == "image":
            require(isinstance(block.get("source"), dict), f"{at}.source must be an object.", f"{at}.source")
        if kind == "tool_use":
            named = isinstance(block.get("id"), str) and isinstance(block.get("name"), str)
            require(named, f"{at} must have an id and a name.", at)
            require(isinstance(block.get("input", {}), dict), f"{at}.input must be an object.", f"{at}.input")
        if kind == "tool_result" and block.get("content") is not None:
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
        named = isinstance(tool.get("name"), str) and bool(tool["name"])
        require(named, f"{where}.name is missing.", f"{where}.name")
        schema = f"{where}.input_schema"
        require(isinstance(tool.get("input_schema"), dict), f"{schema} must be an object.", schema)


def _tool_choice(choice: Any, has_tools: bool) -> dict[str, Any] | None:
    """The choice for LiteLLM's adapter, `None` without tools."""
    if choice is None:
        return None
    if not isinstance(choice, dict) or choice.get("type") not in _CHOICES:
        raise refuse("tool_choice must be an object of type auto, any, tool or none.", "tool_choice")
    if choice["type"] == "tool":
        require(isinstance(choice.get("name"), str), "tool_choice.name is missing.", "tool_choice.name")
    if not has_tools and choice["type"] in ("any", "tool"):
        raise refuse(f"tool_choice is {choice['type']!r}, but the request has no tools.", "tool_choice")
    return choice if has_tools else None


def _thinking(value: Any) -> dict[str, Any]:
    """`thinking` as the chat route's template setting; without it, or with `adaptive`, the policy's default."""
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
