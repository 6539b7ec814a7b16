"""What a failure inside becomes outside: an OpenAI-style error with the right status."""

from __future__ import annotations

import math
from typing import Any

import msgspec
from starlette.responses import Response

from openclaw_rl.shared.errors import (
    BadRequest,
    ContextLengthExceeded,
    EngineError,
    JournalError,
    NotFound,
    OpenClawRLError,
    Overloaded,
    RequestError,
    StorageFull,
)

ENGINE_RETRY_SECONDS = 2.0
VISIBLE = "".join(map(chr, range(33, 127))).replace("%", "") + " "
"""What a header value may hold as it is; the rest is percent-encoded."""


class UpstreamFailed(RequestError):
    """502: the engine broke off or answered nonsense."""

    status = 502
    type = "server_error"
    code = "engine_error"


class TooSlow(RequestError):
    """504: the answer took longer than `request_timeout`."""

    status = 504
    type = "server_error"
    code = "timeout"


def to_request_error(error: OpenClawRLError) -> RequestError:
    """The error that a client is told."""
    if isinstance(error, RequestError):
        return error
    if isinstance(error, ContextLengthExceeded):
        return BadRequest(str(error), code="context_length_exceeded", param="messages")
    if isinstance(error, EngineError):
        if error.status == 404:
            return NotFound(str(error), code="model_not_found", param="model")
        if error.status == 400:
            return BadRequest(str(error), code="invalid_value")
        if error.status in (None, 429, 503):
            return Overloaded(
                f"The engine cannot answer now: {error}", code="engine_unavailable", retry_after=ENGINE_RETRY_SECONDS
            )
        return UpstreamFailed(f"The engine failed: {error}")
    if isinstance(error, JournalError):
        return StorageFull(f"The turn cannot be recorded: {error}", retry_after=10.0)
    return RequestError(str(error), status=500)


def error_response(error: RequestError, headers: dict[str, str] | None = None) -> Response:
    """The JSON response of an error."""
    told = dict(headers or {})
    if error.retry_after is not None:
        told["retry-after"] = str(max(1, math.ceil(error.retry_after)))
    if error.status == 408:
        told["connection"] = "close"
    if error.status == 401:
        told["www-authenticate"] = "Bearer"
    return json_response(error.body(), error.status, told)


def json_response(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A JSON response by msgspec (records are encoded as objects, bytes as base64)."""
    return Response(msgspec.json.encode(content), status, headers, media_type="application/json")
