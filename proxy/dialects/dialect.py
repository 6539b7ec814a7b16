"""The protocol of a dialect: reads its requests, asks through LiteLLM, and writes its answers.

A new dialect is a module next to this one. `adapter.DIALECTS` and `routes.dialects.ROUTES` name it by its path.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from openclaw_rl.proxy.dialects.headers import LEFT_OUT_HEADER
from openclaw_rl.proxy.http.errors import VISIBLE
from openclaw_rl.shared.errors import BadRequest, RequestError
from openclaw_rl.shared.litellm.call import CHAT_MODEL, LiteLLMCall
from openclaw_rl.shared.litellm.callback import PROVIDER

_LONGEST_HEADER = 300
_SHOWN = 10
MODEL = f"{PROVIDER}/{CHAT_MODEL}"
"""The model for LiteLLM. The client's goes separately: LiteLLM fails at a model that has its provider's name."""


class AdapterArguments(msgspec.Struct, frozen=True, kw_only=True):
    """`arguments` are for LiteLLM's adapter, which translates the conversation; `extra` are fields of the chat body."""

    arguments: dict[str, Any]
    extra: dict[str, Any]
    stream: bool


class DialectWriter(ABC):
    """Writes the answer to the request `body`. `ended` says whether the last event of the stream was written."""

    def __init__(self, body: Mapping[str, Any], call: LiteLLMCall) -> None:
        self._body = body
        self._call = call
        self.ended = False

    @property
    def headers(self) -> dict[str, str]:
        """Response headers of the dialect's own."""
        return {}

    @abstractmethod
    def event(self, event: Any) -> bytes:
        """A stream's event as bytes; may be empty."""

    @abstractmethod
    def failure(self, error: RequestError) -> bytes:
        """The event that ends a stream which failed."""

    @abstractmethod
    def whole(self, result: Any) -> dict[str, Any]:
        """The body of an answer in one piece."""


class Dialect(NamedTuple):
    """One wire format. `read` raises `BadRequest` for what LiteLLM would drop in silence or fail at, `method` is
    LiteLLM's function whose adapter calls our provider, `parameters` maps names of the chat body to the dialect's own,
    for errors.
    """

    read: Callable[[Mapping[str, Any]], AdapterArguments]
    method: str
    writer: type[DialectWriter]
    parameters: Mapping[str, str]


def refuse(message: str, param: str, code: str = "invalid_value") -> BadRequest:
    """The error for a field that cannot be honoured."""
    return BadRequest(message, param=param, code=code)


def require(condition: bool, message: str, param: str, code: str = "invalid_value") -> None:
    """Raise `BadRequest` unless the condition holds."""
    if not condition:
        raise refuse(message, param, code)


def copied(body: Mapping[str, Any], *names: str, **renamed: str) -> dict[str, Any]:
    """The fields of `body` that the chat route takes as they are, `renamed` under another name."""
    fields = {name: body[name] for name in names if body.get(name) is not None}
    return fields | {ours: body[theirs] for theirs, ours in renamed.items() if body.get(theirs) is not None}


def streams(body: Mapping[str, Any]) -> bool:
    """Read the field `stream`. Raises `BadRequest`."""
    stream = body.get("stream")
    require(isinstance(stream, bool | None), "stream must be true or false.", "stream")
    return stream is True


def listed(value: Any, where: str) -> list[dict[str, Any]]:
    """A list of objects. Raises `BadRequest`."""
    if not isinstance(value, list):
        raise refuse(f"{where} must be an array.", where)
    for index, item in enumerate(value):
        require(isinstance(item, dict), f"{where}[{index}] must be an object.", f"{where}[{index}]")
    return value


def check_fields(holder: Mapping[str, Any], where: str, kind: Any, *fields: str) -> None:
    """Raise `BadRequest` unless these fields of the object at `where` are texts or, if `kind` says so, objects."""
    for field in fields:
        at = f"{where}.{field}"
        require(isinstance(holder.get(field), kind), f"{at} must be {'a string' if kind is str else 'an object'}.", at)


def check_tool(tool: Mapping[str, Any], where: str, schema: str, schema_type: Any) -> None:
    """Raise `BadRequest` unless the client's tool at `where` has a name and a `schema` of this type."""
    require(bool(tool.get("name")), f"{where}.name is missing.", f"{where}.name")
    check_fields(tool, where, str, "name")
    check_fields(tool, where, schema_type, schema)


def left_out_header(kinds: Sequence[str]) -> dict[str, str]:
    """The response header that names the tools that were not offered; none where all were."""
    named = ", ".join(dict.fromkeys(kinds))
    return {LEFT_OUT_HEADER: quote(named[:_LONGEST_HEADER], safe=VISIBLE)} if named else {}


def forced_server_tool(kinds: Sequence[str]) -> str:
    """The message for a call that is forced where a tool that is left out might be the one that is wanted."""
    return (
        f"tool_choice forces a call, but {', '.join(kinds[:_SHOWN])} would run on the server, and only tools of the "
        "client are available: leave it out, or let the model choose."
    )


def event_bytes(content: Mapping[str, Any]) -> bytes:
    """A server-sent event that is named by its type."""
    return b"event: " + str(content["type"]).encode() + b"\ndata: " + msgspec.json.encode(content) + b"\n\n"


def plain(value: Any) -> Any:
    """One of LiteLLM's objects as JSON types, without what is `None`."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", exclude_none=True)
    return value
