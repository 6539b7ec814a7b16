"""`response_format`: answers held to a JSON schema while the engine samples, where it can."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from openclaw_rl.shared.errors import BadRequest
from openclaw_rl.shared.messages.equality import too_deep
from openclaw_rl.shared.messages.normalize import ChatInput

FIELD = "response_format"
ANY_OBJECT = '{"type":"object"}'


def read_schema(body: Mapping[str, Any]) -> str:
    """The schema that a chat body asks for, as JSON; "" for text. Raises `BadRequest`."""
    form = body.get(FIELD)
    if form is None:
        return ""
    kind = form.get("type") if isinstance(form, dict) else None
    if kind == "text":
        return ""
    if kind == "json_object":
        return ANY_OBJECT
    if kind != "json_schema":
        raise _refusal("response_format must be of type text, json_object or json_schema.")
    schema = _holder(body).get("schema")
    if not isinstance(schema, dict) or too_deep(schema):
        raise _refusal("response_format.json_schema.schema must be a JSON schema.")
    return msgspec.json.encode(schema).decode()


def is_strict(body: Mapping[str, Any]) -> bool:
    """Read `strict`, with which OpenAI takes only schemas that leave nothing open."""
    return _holder(body).get("strict") is True


def check_schema(chat: ChatInput, thinking: bool | None, *, constrains: bool) -> None:
    """Raise `BadRequest` unless an answer to this request can be held to a schema; `constrains`: the engine can."""
    if not constrains:
        raise _refusal(
            "response_format: the engine cannot hold answers to a schema (SGLang with a grammar backend can). Use type "
            "text and ask for JSON in words."
        )
    if chat.tools:
        raise _refusal("response_format cannot be combined with tools: the answer could never be a call.")
    if thinking:
        raise _refusal("response_format cannot be combined with thinking: reasoning follows no schema.")


def _holder(body: Mapping[str, Any]) -> Mapping[str, Any]:
    form = body.get(FIELD)
    holder = form.get("json_schema") if isinstance(form, dict) else None
    return holder if isinstance(holder, dict) else {}


def _refusal(message: str) -> BadRequest:
    return BadRequest(message, param=FIELD, code="unsupported_value")
