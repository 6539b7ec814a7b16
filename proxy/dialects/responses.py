"""`/v1/responses` (platform.openai.com, Responses API): what LiteLLM's adapter needs, and what it leaves to be done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from openclaw_rl.proxy.dialects.dialect import (
    MODEL,
    AdapterArguments,
    Dialect,
    DialectWriter,
    check_fields,
    check_tools,
    copied,
    event_bytes,
    listed,
    plain,
    refuse,
    require,
    streams,
)
from openclaw_rl.proxy.dialects.headers import TURN_HEADER, turn_digits
from openclaw_rl.shared.errors import BadRequest, RequestError
from openclaw_rl.shared.messages.equality import arguments_text

_ITEMS = (
    "message", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output", "reasoning",
)  # fmt: skip
_CALLS = ("function_call", "custom_tool_call")
_OUTPUTS = ("function_call_output", "custom_tool_call_output")
_TOOLS = ("function", "custom")
_ROLES = ("user", "assistant", "system", "developer")
_ENDS = ("response.completed", "response.incomplete", "response.failed")


def read_responses(body: Mapping[str, Any]) -> AdapterArguments:
    """A request in OpenAI's newer dialect. Raises `BadRequest`."""
    items = _input(body.get("input"))
    _refuse_unsupported(body)
    require(isinstance(body.get("instructions"), str | None), "instructions must be a string.", "instructions")
    if body.get("tools") is not None:
        check_tools(body["tools"], _TOOLS, "parameters", dict | None)
    choice = _tool_choice(body.get("tool_choice"))
    if choice not in (None, "auto", "none") and not body.get("tools"):
        raise refuse("tool_choice wants a call, but the request has no tools.", "tool_choice")
    arguments = {"model": MODEL, "input": items, **copied(body, "instructions", "tools"), "tool_choice": choice}
    names = ("model", "temperature", "top_p", "metadata", "user", "prompt_cache_key")
    extra = copied(body, *names, max_output_tokens="max_tokens")
    if body.get("tools"):
        extra |= copied(body, "parallel_tool_calls")
    extra |= _reasoning(body.get("reasoning")) | _format(body.get("text"))
    return AdapterArguments(arguments=arguments, extra=extra, stream=streams(body))


class ResponsesWriter(DialectWriter):
    """Writes the events, or the one object, of an answer; every event is numbered."""

    _number = 0

    def event(self, event: Any) -> bytes:
        content: dict[str, Any] = plain(event)
        kind = str(content["type"])
        self.ended = self.ended or kind in _ENDS
        if "response" in content:
            content["response"] = self._response(content["response"], ended=kind in _ENDS)
        if "item" in content:
            content["item"] = _item(content["item"])
        if kind in ("response.output_text.delta", "response.output_text.done"):
            content.setdefault("logprobs", [])
        written = self._write(content)
        if kind == "response.output_item.added" and content["item"]["type"] == "reasoning":
            added = {"item_id": content["item"]["id"], "output_index": content["output_index"], "summary_index": 0}
            part = {"type": "summary_text", "text": ""}
            written += self._write({"type": "response.reasoning_summary_part.added", **added, "part": part})
        return written

    def failure(self, error: RequestError) -> bytes:
        body = {"type": "error", "code": error.code, "message": error.message, "param": error.param}
        return self._write(body | error.body())

    def whole(self, result: Any) -> dict[str, Any]:
        return self._response(plain(result), ended=True)

    def _write(self, content: dict[str, Any]) -> bytes:
        self._number += 1
        return event_bytes({**content, "sequence_number": self._number - 1})

    def _response(self, made: dict[str, Any], *, ended: bool) -> dict[str, Any]:
        """LiteLLM's response with the client's fields, and those that only the proxy knows."""
        body = self._body
        return {
            "id": "resp_" + turn_digits(self._call.response_headers.get(TURN_HEADER, "")),
            "object": "response",
            "created_at": int(made.get("created_at") or 0),
            "status": made.get("status") or "completed",
            "background": False,
            "error": made.get("error"),
            "incomplete_details": made.get("incomplete_details"),
            "instructions": body.get("instructions"),
            "max_output_tokens": body.get("max_output_tokens"),
            "metadata": body.get("metadata") or {},
            "model": self._call.extra.get("model") or made.get("model"),
            "output": [_item(item) for item in made.get("output") or ()],
            "parallel_tool_calls": body.get("parallel_tool_calls") is not False,
            "previous_response_id": body.get("previous_response_id"),
            "reasoning": {"effort": None, "summary": None, **(body.get("reasoning") or {})},
            "store": body.get("store") is not False,
            "temperature": body.get("temperature", 1.0),
            "text": body.get("text") or {"format": {"type": "text"}},
            "tool_choice": body.get("tool_choice") or "auto",
            "tools": body.get("tools") or [],
            "top_p": body.get("top_p", 1.0),
            "truncation": body.get("truncation") or "disabled",
            "usage": _usage(self._call.usage) if ended else None,
            "user": body.get("user"),
        }


RESPONSES = Dialect(
    read_responses,
    "aresponses",
    ResponsesWriter,
    {"max_tokens": "max_output_tokens", "messages": "input", "response_format": "text.format"},
)


def _item(item: dict[str, Any]) -> dict[str, Any]:
    """An output item; LiteLLM writes reasoning in three ways, of which this is the API's."""
    if item.get("type") != "reasoning":
        return item
    parts = item.get("summary") or item.get("content") or []
    summary = [{"type": "summary_text", "text": part["text"]} for part in parts]
    return {"id": item.get("id"), "type": "reasoning", "summary": summary}


def _usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    details = usage.get("prompt_tokens_details") or {}
    return {
        "input_tokens": usage.get("prompt_tokens", 0),
        "input_tokens_details": {"cached_tokens": details.get("cached_tokens", 0)},
        "output_tokens": usage.get("completion_tokens", 0),
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.get("total_tokens", 0),
    }


def _input(value: Any) -> list[dict[str, Any]]:
    """The input as items. An output without its call is refused, since LiteLLM would invent the call."""
    if isinstance(value, str):
        return [{"type": "message", "role": "user", "content": value}]
    items = listed(value, "input")
    require(bool(items), "input is empty: send a text or at least one item.", "input")
    called: set[str] = set()
    for index, item in enumerate(items):
        where = f"input[{index}]"
        kind = item.get("type") or "message"
        if kind == "item_reference":
            raise refuse(f"{where} refers to a stored item; send the item itself.", where, "unsupported_value")
        if kind not in _ITEMS:
            raise refuse(f"{where} has type {kind!r}; served are {', '.join(sorted(_ITEMS))}.", f"{where}.type")
        if kind == "message":
            _check_message(item, where)
        elif kind in _CALLS:
            check_fields(item, where, str, "call_id", "name", "input" if kind == "custom_tool_call" else "arguments")
            called.add(item["call_id"])
        elif kind in _OUTPUTS and (not isinstance(item.get("call_id"), str) or item["call_id"] not in called):
            raise refuse(f"{where}: no call with call_id {item.get('call_id')!r} comes before it.", f"{where}.call_id")
    return [{"type": "message", **item} for item in items]


def _check_message(item: Mapping[str, Any], where: str) -> None:
    if item.get("role") not in _ROLES:
        raise refuse(f"{where}.role must be one of {', '.join(_ROLES)}.", f"{where}.role")
    content = item.get("content")
    if isinstance(content, str):
        return
    for index, part in enumerate(listed(content, f"{where}.content")):
        kind, at = part.get("type"), f"{where}.content[{index}]"
        if kind in ("input_text", "output_text", "text"):
            check_fields(part, at, str, "text")
        elif kind not in ("input_image", "refusal"):
            raise refuse(f"{at} has type {kind!r}, but the model takes no such input.", f"{at}.type")


def _tool_choice(choice: Any) -> Any:
    if choice is None or choice in ("auto", "none", "required"):
        return choice
    if isinstance(choice, dict) and choice.get("type") in _TOOLS and isinstance(choice.get("name"), str):
        return choice
    message = "tool_choice must be 'none', 'auto', 'required' or {'type': 'function', 'name': ...}."
    raise refuse(message, "tool_choice", "unsupported_value")


def _reasoning(value: Any) -> dict[str, Any]:
    require(isinstance(value, dict | None), "reasoning must be an object.", "reasoning")
    return copied(value or {}, effort="reasoning_effort")


def _format(text: Any) -> dict[str, Any]:
    """`text.format` as the chat route's `response_format`."""
    if text is None:
        return {}
    form = text.get("format") if isinstance(text, dict) else "none"
    if form is None:
        return {}
    if not isinstance(form, dict):
        raise refuse("text must be an object like {'format': {'type': 'text'}}.", "text")
    if form.get("type") != "json_schema":
        return {"response_format": form}
    return {"response_format": {"type": "json_schema", "json_schema": copied(form, "name", "schema", "strict")}}


def _refuse_unsupported(body: Mapping[str, Any]) -> None:
    for field, why in (
        ("background", "answers are given while the client waits"),
        ("prompt", "no prompts are stored here: send instructions and input"),
        ("conversation", "none are stored here: send the whole input, or previous_response_id"),
        ("top_logprobs", "ask /v1/chat/completions for logprobs"),
        ("context_management", "the client has to manage its context"),
    ):
        require(not body.get(field), f"{field} is not supported: {why}.", field, "unsupported_parameter")
    include = body.get("include") or []
    require(isinstance(include, list), "include must be an array.", "include")
    if "message.output_text.logprobs" in include:
        raise refuse("logprobs are not available here; ask /v1/chat/completions.", "include", "unsupported_value")


def previous_turn(body: Mapping[str, Any]) -> str | None:
    """The turn that `previous_response_id` names. Raises `BadRequest`."""
    identity = body.get("previous_response_id")
    if identity is None:
        return None
    if not isinstance(identity, str) or not identity.startswith("resp_"):
        raise unknown_previous(identity)
    return "turn_" + turn_digits(identity)


def unknown_previous(identity: Any) -> BadRequest:
    """The error for a previous response that is not kept here."""
    return refuse(
        f"Previous response with id {identity!r} not found: only recorded and complete answers can be continued by id. "
        "Send the whole input instead.",
        "previous_response_id",
        "previous_response_not_found",
    )


def continued(body: Mapping[str, Any], turn: Mapping[str, Any]) -> dict[str, Any]:
    """The body with the history of `turn` (as `/rl/turns/{id}` shows it) before its input.

    New instructions replace the old ones, which stand first. Raises `BadRequest` where there is no answer to continue.
    """
    if turn.get("status") != "complete":
        raise unknown_previous(body.get("previous_response_id"))
    messages = list(turn["messages"])
    if body.get("instructions") and messages and messages[0]["role"] == "system":
        del messages[0]
    items = [item for message in [*messages, turn["answer"]] for item in _items(message)]
    new = body.get("input")
    if isinstance(new, str):
        new = [{"type": "message", "role": "user", "content": new}]
    return {**body, "input": [*items, *listed(new, "input")]}


def _items(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A canonical message as input items."""
    role, content = message["role"], message["content"]
    if role == "tool":
        output = content if isinstance(content, str) else [_part(part, "input") for part in content]
        return [{"type": "function_call_output", "call_id": message.get("tool_call_id", ""), "output": output}]
    items: list[dict[str, Any]] = []
    if message.get("reasoning"):
        items.append({"type": "reasoning", "summary": [{"type": "summary_text", "text": message["reasoning"]}]})
    if content or role != "assistant":
        kind = "output" if role == "assistant" else "input"
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        items.append({"type": "message", "role": role, "content": [_part(part, kind) for part in parts]})
    for call in message.get("tool_calls") or ():
        named = {"call_id": call["id"], "name": call["name"], "arguments": arguments_text(call)}
        items.append({"type": "function_call", **named})
    return items


def _part(part: Mapping[str, Any], kind: str) -> dict[str, Any]:
    if part["type"] == "text":
        return {"type": f"{kind}_text", "text": part["text"]}
    return {"type": "input_image", "image_url": part["image_url"]["url"]}
