"""Our errors in the shape that each dialect's clients expect.

OpenAI's dialects share the shape of `RequestError.body`. Anthropic's is different (docs.anthropic.com, errors): its
clients act on the type, the status and `Retry-After`; some know by the first words that a prompt was too long.
"""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from openclaw_rl.proxy.http.errors import error_response
from openclaw_rl.proxy.http.json import json_response
from openclaw_rl.shared.errors import RequestError

MESSAGES_PATH = "/v1/messages"

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def anthropic_error(error: RequestError) -> dict[str, Any]:
    """Anthropic's body of an error, with our `code` and `param` added."""
    kind = _TYPES.get(error.status) or ("invalid_request_error" if error.status < 500 else "api_error")
    too_long = "prompt is too long: " if error.code == "context_length_exceeded" else ""
    detail = {"type": kind, "message": too_long + error.message, "code": error.code, "param": error.param}
    shown = {name: value for name, value in detail.items() if value is not None}
    return {"type": "error", "error": shown}


def dialect_response(path: str, error: RequestError, headers: dict[str, str] | None = None) -> Response:
    """The error response for a client of the dialect at `path`."""
    response = error_response(error, headers)
    if not path.startswith(MESSAGES_PATH):
        return response
    kept = {name: value for name, value in response.headers.items() if name not in ("content-length", "content-type")}
    return json_response(anthropic_error(error), error.status, kept)
