"""How long a chat request's prompt is, without an answer: what the dialects' counting routes rest on."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from openclaw_rl.proxy.http.body import read_body, read_headers
from openclaw_rl.proxy.http.errors import json_response
from openclaw_rl.proxy.service import Service


async def count_tokens(request: Request) -> Response:
    """`POST /v1/chat/completions/input_tokens`: takes the body of a chat request."""
    service: Service = request.app.state.service
    headers = read_headers(request.scope)
    settings = service.settings
    data = await read_body(request.receive, headers, settings.max_body_bytes, settings.slow_client_seconds)
    length = await service.reader.prompt_tokens(data)
    return json_response({"object": "response.input_tokens", "input_tokens": length})
