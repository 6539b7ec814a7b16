"""The routes of the other dialects: each request goes to the adapter process, and its answer comes back unchanged."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from functools import partial

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from openclaw_rl.proxy.chat.parameters import read_thinking
from openclaw_rl.proxy.chat.request import read_chat
from openclaw_rl.proxy.dialects.compaction import COMPACT_PATH
from openclaw_rl.proxy.dialects.errors import dialect_response
from openclaw_rl.proxy.dialects.headers import CHAT_HEADER, MARK_HEADER
from openclaw_rl.proxy.dialects.process import CHAT
from openclaw_rl.proxy.http import limits
from openclaw_rl.proxy.http.body import answer_unless_gone, read_body, read_headers, receive_body, send_response
from openclaw_rl.proxy.http.json import decode_object, json_response
from openclaw_rl.proxy.http.limits import ConcurrencyLimit
from openclaw_rl.proxy.service import ProxyService
from openclaw_rl.shared.errors import RequestError

log = logging.getLogger(__name__)

ROUTES: Mapping[str, str] = {
    "/v1/responses": "responses",
    "/v1/responses/input_tokens": "responses",
    COMPACT_PATH: "responses",
    "/v1/messages": "messages",
    "/v1/messages/count_tokens": "messages",
}
_HOP = frozenset((b"connection", b"keep-alive", b"transfer-encoding", b"date", b"server"))
_NOT_PASSED_ON = ("host", "connection", "content-length", "transfer-encoding", "accept-encoding", "expect")


class DialectRoute:
    """The ASGI application of one path."""

    def __init__(self, service: ProxyService, path: str) -> None:
        self._adapter = service.dialects
        self._limits = service.limits
        self._path = path
        self._dialect = ROUTES[path]
        self._requests = service.metrics.dialect_requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = read_headers(scope)
        refusal = partial(dialect_response, self._path)
        data = await receive_body(receive, send, headers, limits.LARGEST_BODY, limits.CLIENT_SECONDS, refusal)
        if data is None:
            return
        headers = {name: value for name, value in headers.items() if name not in _NOT_PASSED_ON}
        headers[CHAT_HEADER] = _own_url(scope)
        headers[MARK_HEADER] = self._adapter.mark(self._dialect)
        key_limit = self._limits.for_key(scope["caller"].key)
        await answer_unless_gone(receive, self._relay(headers, data, send, key_limit))

    async def _relay(self, headers: Mapping[str, str], data: bytes, send: Send, key_limit: ConcurrencyLimit) -> None:
        status, begun = 499, False
        try:
            async with (
                key_limit.place(),
                self._adapter.limit.place(),
                self._adapter.post(self._path, data, headers) as response,
            ):
                raw = [(name.lower(), value) for name, value in response.headers.raw if name.lower() not in _HOP]
                await send({"type": "http.response.start", "status": response.status_code, "headers": raw})
                status, begun = response.status_code, True
                async for chunk in response.aiter_raw():
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
                await send({"type": "http.response.body", "body": b""})
        except RequestError as error:
            status = error.status
            await self._refuse(error, send)
        except ConnectionError as error:
            if begun:  # the connection closes before the response ends, as clients can see
                log.warning("an answer of %s broke off: %r", self._path, error)
                raise
            status = 502
            log.warning("the adapter process did not answer %s: %r", self._path, error)
            message = "The adapter process broke off."
            await self._refuse(RequestError(message, status=502, code="adapter_unavailable", retry_after=1.0), send)
        finally:
            self._requests.labels(self._dialect, status).inc()

    async def _refuse(self, error: RequestError, send: Send) -> None:
        with contextlib.suppress(OSError):
            await send_response(dialect_response(self._path, error), send)


async def refuse_websocket(request: Request) -> Response:
    """Some clients of Responses try a WebSocket first. This status sends them to HTTP at once, without retries."""
    if request.headers.get("upgrade", "").lower() != "websocket":
        raise HTTPException(405, "Method Not Allowed", {"allow": "POST"})
    message = "WebSockets are not supported: send requests by POST, the answer can be streamed."
    raise RequestError(message, status=426, code="websocket_not_supported")


async def count_tokens(request: Request) -> Response:
    """The length of a chat request's prompt. The counting routes of the dialects rest on it."""
    service: ProxyService = request.app.state.service
    headers = read_headers(request.scope)
    data = await read_body(request.receive, headers, limits.LARGEST_BODY, limits.CLIENT_SECONDS)
    own = service.dialects.dialect_of(headers) == CHAT  # others hold their key's place where they came in
    place = service.limits.for_key(request.scope["caller"].key).place() if own else contextlib.nullcontext()
    async with place:
        fields = decode_object(data)
        service.names.read(fields.get("model"))
        chat = await read_chat(fields, len(data), service.watch.blind)
        count = await service.renderer.count(chat, read_thinking(fields))
    return json_response({"object": "response.input_tokens", "input_tokens": count})


def _own_url(scope: Scope) -> str:
    """The address where this request came in: it can be reached from here."""
    host, port = scope["server"]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
