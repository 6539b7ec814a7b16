"""Our errors in the shape that each dialect's clients expect.

OpenAI's dialects share one shape, the one of `RequestError.body`. Anthropic's has its own (docs.anthropic.com, errors),
and clients of it act on the type, the status and `Retry-After`; some tell by its first words that a prompt was too
long.
"""

from __future__ import annotations

from typing import Any

import msgspec
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
_TOO_LONG = "prompt is too long"


def anthropic_error(error: RequestError) -> dict[str, Any]:
    """Anthropic's body of an error; `code` and `param` are ours, beside what the dialect knows."""
    kind = _TYPES.get(error.status) or ("invalid_request_error" if error.status < 500 else "api_error")
    message = error.message
    if error.code == "context_length_exceeded":
        message = f"{_TOO_LONG}: {message}"
    detail: dict[str, Any] = {"type": kind, "message": message}
    if error.code is not None:
        detail["code"] = error.code
    if error.param is not None:
        detail["param"] = error.param
    return {"type": "error", "error": detail}


def dialect_response(path: str, error: RequestError, headers: dict[str, str] | None = None) -> Response:
    """The response that tells a client of the dialect at `path` of an error."""
    made = error_response(error, headers)
    if not path.startswith(MESSAGES_PATH):
        return made
    told = {name: value for name, value in made.headers.items() if name not in ("content-length", "content-type")}
    return json_response(anthropic_error(error), error.status, told)


def anthropic_event(error: RequestError) -> bytes:
    """The event that ends an Anthropic stream which failed."""
    return b"event: error\ndata: " + msgspec.json.encode(anthropic_error(error)) + b"\n\n"


def responses_event(error: RequestError, sequence_number: int) -> bytes:
    """The event that ends a Responses stream which failed.

    Its fields are those of OpenAI's `error` event; `error` beside them is what the clients' own code looks for.
    """
    body = {
        "type": "error",
        "code": error.code,
        "message": error.message,
        "param": error.param,
        "sequence_number": sequence_number,
        "error": error.body()["error"],
    }
    return b"event: error\ndata: " + msgspec.json.encode(body) + b"\n\n"
