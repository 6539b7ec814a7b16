"""`/v1/responses` (platform.openai.com, Responses API): what LiteLLM's adapter needs, and what it leaves to be done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from openclaw_rl.proxy.dialects.compaction import (
    compaction_item,
    is_triggered,
    kept_messages,
    spelled_out,
    summary_request,
)
from openclaw_rl.proxy.dialects.dialect import (
    MODEL,
    AdapterArguments,
    Dialect,
    DialectWriter,
    check_fields,
    copied,
    event_bytes,
    left_out_header,
    listed,
    plain,
    refuse,
    require,
    streams,
)
from openclaw_rl.proxy.dialects.headers import KEPT_HEADER, TURN_HEADER, turn_digits
from openclaw_rl.proxy.dialects.responses_history import ItemIds
from openclaw_rl.proxy.dialects.responses_tools import CALLS, ResponsesTools, as_functions
from openclaw_rl.proxy.http.body import METADATA
from openclaw_rl.shared.errors import RequestError
from openclaw_rl.shared.litellm.call import LiteLLMCall

_ITEMS = (
    "message", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output", "reasoning",
)  # fmt: skip
_OUTPUTS = ("function_call_output", "custom_tool_call_output")
_ROLES = ("user", "assistant", "system", "developer")
_ENDS = ("response.completed", "response.incomplete", "response.failed")


def read_responses(body: Mapping[str, Any]) -> AdapterArguments:
    """A request in OpenAI's newer dialect. Raises `BadRequest`."""
    tools = ResponsesTools(body)
    items = _input(body.get("input"), tools)
    _refuse_unsupported(body)
    require(isinstance(body.get("instructions"), str | None), "instructions must be a string.", "instructions")
    arguments = {"model": MODEL, "input": items, **copied(body, "instructions"), "tool_choice": tools.choice}
    names = ("model", "temperature", "top_p", *METADATA, "user", "prompt_cache_key")
    extra = copied(body, *names, max_output_tokens="max_tokens")
    if tools.offered:
        arguments["tools"] = tools.offered
        extra |= copied(body, "parallel_tool_calls")
    extra |= _reasoning(body.get("reasoning")) | _format(body.get("text"))
    return AdapterArguments(arguments=arguments, extra=extra, stream=streams(body))


class ResponsesWriter(DialectWriter):
    """Writes the events, or the one object, of an answer; every event is numbered."""

    _number = 0

    def __init__(self, body: Mapping[str, Any], call: LiteLLMCall) -> None:
        super().__init__(body, call)
        self._tools = ResponsesTools(body)
        self._ids: ItemIds | None = None  # once the turn is known
        self._done = 0  # items whose end has been written
        self._held: dict[int, dict[str, Any]] = {}  # ends of later items

    @property
    def headers(self) -> dict[str, str]:
        return left_out_header(self._tools.left_out)

    def event(self, event: Any) -> bytes:
        content: dict[str, Any] = plain(event)
        kind = str(content["type"])
        self.ended = self.ended or kind in _ENDS
        index = content.get("output_index")
        if "item" in content:
            content["item"] = self._item(index or 0, content["item"])
        if "item_id" in content and isinstance(index, int):
            content["item_id"] = self._item_ids.known(index) or content["item_id"]
        if "response" in content:
            content["response"] = self._response(content["response"], ended=kind in _ENDS)
        if kind in ("response.output_text.delta", "response.output_text.done"):
            content.setdefault("logprobs", [])
        if kind == "response.output_item.done" and isinstance(index, int):
            return self._end_item(index, content)
        written = b"".join(self._write(self._held.pop(later)) for later in sorted(self._held)) if self.ended else b""
        written += self._write(content)
        if kind == "response.output_item.added" and content["item"]["type"] == "reasoning":
            added = {"item_id": content["item"]["id"], "output_index": content["output_index"], "summary_index": 0}
            part = {"type": "summary_text", "text": ""}
            written += self._write({"type": "response.reasoning_summary_part.added", **added, "part": part})
        return written

    def _end_item(self, index: int, content: dict[str, Any]) -> bytes:
        """Write the ends of items in order: LiteLLM ends calls before the text that came first, and clients keep their
        history in the order of the ends.
        """
        self._held[index] = content
        written = b""
        while self._done in self._held:
            written += self._write(self._held.pop(self._done))
            self._done += 1
        return written

    def failure(self, error: RequestError) -> bytes:
        body = {"type": "error", "code": error.code, "message": error.message, "param": error.param}
        return self._write(body | error.body())

    def whole(self, result: Any) -> dict[str, Any]:
        return self._response(plain(result), ended=True)

    @property
    def _digits(self) -> str:
        return turn_digits(self._call.response_headers.get(TURN_HEADER, ""))

    @property
    def _item_ids(self) -> ItemIds:
        self._ids = self._ids or ItemIds(self._digits)
        return self._ids

    def _item(self, index: int, item: dict[str, Any]) -> dict[str, Any]:
        """An output item with an id by which it can be found again."""
        identity = self._item_ids.at(index, str(item.get("type")))
        return {**self._tools.restore(_item(item)), "id": identity}

    def _write(self, content: dict[str, Any]) -> bytes:
        self._number += 1
        return event_bytes({**content, "sequence_number": self._number - 1})

    def _response(self, made: dict[str, Any], *, ended: bool) -> dict[str, Any]:
        """LiteLLM's response with the client's fields, and those that only the proxy knows."""
        body = self._body
        return {
            "id": f"resp_{self._digits}",
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
            "output": [self._item(index, item) for index, item in enumerate(made.get("output") or ())],
            "parallel_tool_calls": body.get("parallel_tool_calls") is not False,
            "previous_response_id": body.get("previous_response_id"),
            "reasoning": {"effort": None, "summary": None, **(body.get("reasoning") or {})},
            "store": body.get("store") is not False and KEPT_HEADER in self._call.response_headers,
            "temperature": body.get("temperature", 1.0),
            "text": body.get("text") or {"format": {"type": "text"}},
            "tool_choice": body.get("tool_choice") or "auto",
            "tools": [tool for tool in body.get("tools") or () if tool.get("type") not in self._tools.left_out],
            "top_p": body.get("top_p", 1.0),
            "truncation": body.get("truncation") or "disabled",
            "usage": _usage(self._call.usage) if ended else None,
            "user": body.get("user"),
        }


class CompactionWriter(ResponsesWriter):
    """Writes the summary that the policy made as a compaction: as one item of a stream, or as a compacted history."""

    def event(self, event: Any) -> bytes:
        content: dict[str, Any] = plain(event)
        kind = str(content["type"])
        if kind not in ("response.created", "response.in_progress", *_ENDS):
            return b""
        self.ended = self.ended or kind in _ENDS
        made = content["response"]
        compacted = self._compacted(made)
        content["response"] = self._response({**made, "output": []}, ended=self.ended) | {"output": compacted}
        written = b""
        for number, item in enumerate(compacted):
            for step in ("added", "done"):
                written += self._write({"type": f"response.output_item.{step}", "output_index": number, "item": item})
        return written + self._write(content)

    def whole(self, result: Any) -> dict[str, Any]:
        made = plain(result)
        response = self._response({**made, "output": []}, ended=True)
        if is_triggered(self._body):
            return response | {"output": self._compacted(made)}
        return {
            "id": response["id"],
            "object": "response.compaction",
            "created_at": response["created_at"],
            "output": [*kept_messages(self._body), *self._compacted(made)],
            "usage": response["usage"],
        }

    def _compacted(self, made: Mapping[str, Any]) -> list[dict[str, Any]]:
        items = [item for item in made.get("output") or () if item.get("type") == "message"]
        text = "".join(part.get("text") or "" for item in items for part in item["content"])
        return [compaction_item(self._digits, text)] if items else []


_PARAMETERS = {"max_tokens": "max_output_tokens", "messages": "input", "response_format": "text.format"}
RESPONSES = Dialect(read_responses, "aresponses", ResponsesWriter, _PARAMETERS)
COMPACTION = Dialect(lambda body: read_responses(summary_request(body)), "aresponses", CompactionWriter, _PARAMETERS)


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


def _input(value: Any, tools: ResponsesTools) -> list[dict[str, Any]]:
    """The input as items. An output without its call is refused, since LiteLLM would invent the call."""
    if isinstance(value, str):
        return [{"type": "message", "role": "user", "content": value}]
    items = as_functions(spelled_out(tools.flatten(listed(value, "input"))))
    require(bool(items), "input is empty: send a text or at least one item.", "input")
    called: set[str] = set()
    for index, item in enumerate(items):
        where = f"input[{index}]"
        kind = item.get("type") or "message"
        if kind not in _ITEMS:
            raise refuse(f"{where} has type {kind!r}; served are {', '.join(sorted(_ITEMS))}.", f"{where}.type")
        if kind == "message":
            _check_message(item, where)
        elif kind in CALLS:
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
