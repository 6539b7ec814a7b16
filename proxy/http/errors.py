"""Failures inside as clients see them: an OpenAI-style error with the right status."""

from __future__ import annotations

import math

from starlette.responses import Response

from openclaw_rl.proxy.http.json import json_response
from openclaw_rl.shared.errors import (
    BadRequest,
    ContextLengthExceeded,
    EngineError,
    JournalError,
    MissingRecord,
    NotFound,
    OpenClawRLError,
    Overloaded,
    RequestError,
    StorageFull,
)

ENGINE_RETRY_SECONDS = 2.0
VISIBLE = "".join(map(chr, range(33, 127))).replace("%", "") + " "
"""Characters that a header value may hold unchanged; all others are percent-encoded."""


def to_request_error(error: OpenClawRLError) -> RequestError:
    """The error that the client receives."""
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
        return RequestError(f"The engine failed: {error}", status=502, code="engine_error")
    if isinstance(error, MissingRecord):  # forgotten since the route looked it up
        return NotFound(f"{error}.", code="not_found")
    if isinstance(error, JournalError):
        return StorageFull(f"The turn cannot be recorded: {error}", retry_after=10.0)
    return RequestError(str(error), status=500)


def internal_error() -> RequestError:
    """The error for a bug of ours, whose traceback is in the log."""
    return RequestError("Something went wrong in the proxy; its log says what.", status=500)


def error_response(error: RequestError, headers: dict[str, str] | None = None) -> Response:
    """The JSON response of an error."""
    headers = dict(headers or {})
    if error.retry_after is not None:
        headers["retry-after"] = str(max(1, math.ceil(error.retry_after)))
    if error.status in (408, 413):  # the rest of the body is not read
        headers["connection"] = "close"
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    return json_response(error.body(), error.status, headers)
