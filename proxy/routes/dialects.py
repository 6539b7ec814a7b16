"""The routes of the other dialects: each request goes to the adapter process, and its answer comes back byte for byte.

Only the proxy says which dialect a turn came in: it gives the adapter a mark with a secret of its own, and gets it back
on the chat route. A mark that a client makes up is ignored.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from openclaw_rl.proxy.dialects.errors import dialect_response
from openclaw_rl.proxy.dialects.headers import CHAT_HEADER, MARK_HEADER
from openclaw_rl.proxy.dialects.process import AdapterProcess
from openclaw_rl.proxy.http.body import Disconnected, answer_unless_gone, discard, read_body, read_headers
from openclaw_rl.proxy.http.errors import UpstreamFailed
from openclaw_rl.proxy.http.limits import Limit
from openclaw_rl.shared.errors import RequestError, TooLarge, UploadTooSlow

if TYPE_CHECKING:
    from openclaw_rl.proxy.service import Service

log = logging.getLogger(__name__)

CHAT = "chat"
ROUTES: Mapping[str, str] = {
    "/v1/responses": "responses",
    "/v1/responses/input_tokens": "responses",
    "/v1/messages": "messages",
    "/v1/messages/count_tokens": "messages",
}
_HOP = frozenset((b"connection", b"keep-alive", b"transfer-encoding", b"date", b"server"))
_NOT_PASSED_ON = ("host", "connection", "content-length", "transfer-encoding", "accept-encoding", "expect")
_DISCARD_BYTES = 256 << 20


class Dialects:
    """The adapter process, its limit, and the mark that tells its requests from others."""

    def __init__(self, places: int, wait_seconds: float, longest_line: int) -> None:
        self.process = AdapterProcess()
        self.limit = Limit(places, wait_seconds, longest_line, name="dialect_concurrency", per_key=False)
        self._secret = secrets.token_hex(16)

    def of(self, headers: Mapping[str, str]) -> str:
        """The dialect of a request on the chat route."""
        secret, _, name = headers.get(MARK_HEADER, "").partition(" ")
        return name if name and hmac.compare_digest(secret.encode(), self._secret.encode()) else CHAT

    def mark(self, name: str) -> str:
        """The mark of a dialect."""
        return f"{self._secret} {name}"


class DialectRoute:
    """The ASGI application of one path."""

    def __init__(self, service: Service, path: str) -> None:
        self._dialects = service.dialects
        self._limits = service.limits
        self._path = path
        self._max_body_bytes = service.settings.max_body_bytes
        self._patience = service.settings.slow_client_seconds
        self._requests = service.metrics.dialect_requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = read_headers(scope)
        try:
            data = await read_body(receive, headers, self._max_body_bytes, self._patience)
        except Disconnected:
            return
        except UploadTooSlow as error:
            await self._tell(error, send, {"connection": "close"})
            return
        except TooLarge as error:
            await self._tell(error, send, {"connection": "close"})
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(30.0):
                    await discard(receive, _DISCARD_BYTES)
            return
        headers = {name: value for name, value in headers.items() if name not in _NOT_PASSED_ON}
        headers[CHAT_HEADER] = _own_url(scope)
        headers[MARK_HEADER] = self._dialects.mark(ROUTES[self._path])
        own = self._limits.of(scope.get("client_key", 0))
        await answer_unless_gone(receive, self._relay(headers, data, send, own))

    async def _relay(self, headers: Mapping[str, str], data: bytes, send: Send, own: Limit) -> None:
        status, begun = 499, False
        try:
            async with own.place(), self._dialects.limit.place():
                connections = await self._dialects.process.connections()
                async with connections.post(self._path, data, headers) as response:
                    raw = [(name.lower(), value) for name, value in response.headers.raw if name.lower() not in _HOP]
                    await send({"type": "http.response.start", "status": response.status_code, "headers": raw})
                    status, begun = response.status_code, True
                    async for chunk in response.aiter_raw():
                        await send({"type": "http.response.body", "body": chunk, "more_body": True})
                    await send({"type": "http.response.body", "body": b""})
        except RequestError as error:
            status = error.status
            await self._tell(error, send)
        except ConnectionError as error:
            if begun:  # the connection closes without its end, which clients see as what it is
                log.warning("an answer of %s broke off: %r", self._path, error)
                raise
            status = UpstreamFailed.status
            log.warning("the adapter process did not answer %s: %r", self._path, error)
            broke = UpstreamFailed("The adapter process broke off.", code="adapter_unavailable", retry_after=1.0)
            await self._tell(broke, send)
        finally:
            self._requests.labels(ROUTES[self._path], status).inc()

    async def _tell(self, error: RequestError, send: Send, headers: dict[str, str] | None = None) -> None:
        response: Response = dialect_response(self._path, error, headers)
        with contextlib.suppress(OSError):
            start = {"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers}
            await send(start)
            await send({"type": "http.response.body", "body": response.body})


def _own_url(scope: Scope) -> str:
    """Where this very request came in: an address of ours that can be reached from here."""
    host, port = scope["server"]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
