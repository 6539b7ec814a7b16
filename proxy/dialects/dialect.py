"""The protocol of a dialect: reads its requests, asks through LiteLLM, and writes its answers.

A new dialect is a module next to this one. `adapter.DIALECTS` and `routes.dialects.ROUTES` name it by its path.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from openclaw_rl.shared.errors import BadRequest, RequestError
from openclaw_rl.shared.litellm.call import CHAT_MODEL, LiteLLMCall
from openclaw_rl.shared.litellm.callback import PROVIDER

MODEL = f"{PROVIDER}/{CHAT_MODEL}"
"""The model for LiteLLM. The client's goes separately: LiteLLM fails at a model that has its provider's name."""


class AdapterArguments(msgspec.Struct, frozen=True, kw_only=True):
    """A request, read. `arguments` are for LiteLLM's adapter, which translates the conversation; `extra` are the fields
    of the chat body that need no translation.
    """

    arguments: dict[str, Any]
    extra: dict[str, Any]
    stream: bool

    def unstreamed(self) -> AdapterArguments:
        """The same request for an answer in one piece."""
        return msgspec.structs.replace(self, stream=False)


class DialectWriter(Protocol):
    """Writes one answer. `ended` says whether the last event of the stream was written."""

    ended: bool

    def event(self, event: Any) -> bytes:
        """A stream's event as bytes; may be empty."""
        ...

    def failure(self, error: RequestError) -> bytes:
        """The event that ends a stream which failed."""
        ...

    def whole(self, result: Any) -> dict[str, Any]:
        """The body of an answer in one piece."""
        ...


class Dialect(Protocol):
    """One wire format. `parameters` maps names of the chat body to its own, for errors."""

    parameters: Mapping[str, str]

    def read(self, body: Mapping[str, Any]) -> AdapterArguments:
        """Raises `BadRequest` for what LiteLLM would drop in silence or fail at."""
        ...

    async def ask(self, library: Any, arguments: AdapterArguments) -> Any:
        """The answer of LiteLLM's adapter, which calls our provider."""
        ...

    def writer(self, body: Mapping[str, Any], call: LiteLLMCall) -> DialectWriter:
        """A writer of the answer to this request."""
        ...


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


def plain(value: Any) -> Any:
    """One of LiteLLM's objects as JSON types, without what is `None`."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", exclude_none=True)
    return value
