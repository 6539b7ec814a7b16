"""The adapter process: LiteLLM's adapters over our provider, for the proxy that started it alone.

It listens on a socket that only its owner can reach, translates a request of a dialect into a chat request, sends that
to the proxy with the client's own headers, and translates the answer back. It keeps nothing: tokens are captured in the
proxy. It is a process because LiteLLM takes seconds to load and milliseconds of CPU a request, neither of which may
slow down a chat in progress; loading runs at a low priority.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx
import uvicorn
from starlette.types import Receive, Scope, Send

from openclaw_rl.proxy.dialects.compaction import COMPACT_PATH, is_triggered
from openclaw_rl.proxy.dialects.dialect import Dialect, DialectWriter
from openclaw_rl.proxy.dialects.errors import dialect_response
from openclaw_rl.proxy.dialects.fallback import answer_by_other
from openclaw_rl.proxy.dialects.headers import CHAT_HEADER, OTHER_PATH, READY
from openclaw_rl.proxy.dialects.messages import MESSAGES
from openclaw_rl.proxy.dialects.responses import COMPACTION, RESPONSES
from openclaw_rl.proxy.dialects.responses_history import (
    continued,
    previous_turn,
    referenced_turns,
    unknown_previous,
    with_items,
)
from openclaw_rl.proxy.http.body import Disconnected, answer_unless_gone, read_body, read_headers, send_response
from openclaw_rl.proxy.http.errors import internal_error
from openclaw_rl.proxy.http.json import decode_object, json_response
from openclaw_rl.proxy.http.sse import PING
from openclaw_rl.proxy.http.stream import PING_SECONDS, EventStream
from openclaw_rl.shared.errors import BadRequest, ConfigError, NotFound, RequestError
from openclaw_rl.shared.extras import install_command
from openclaw_rl.shared.litellm.call import CALL, LiteLLMCall
from openclaw_rl.shared.litellm.provider import register, tls
from openclaw_rl.shared.logs import configure_logs
from openclaw_rl.shared.process import die_with_parent

log = logging.getLogger(__name__)

LOADING_PRIORITY = 10  # a tenth of a chat's share of the CPU, where they compete
GRACE_SECONDS = 3
LOOK_UPS = 4
"""Turns that are looked up at once for a request."""

DIALECTS: Mapping[str, Dialect] = {
    "/v1/responses": RESPONSES,
    COMPACT_PATH: COMPACTION,
    "/v1/messages": MESSAGES,
}
COUNTING = {"/v1/responses/input_tokens": "/v1/responses", "/v1/messages/count_tokens": "/v1/messages"}
_NOT_FORWARDED = frozenset(
    (
        "host", "connection", "content-length", "content-type", "transfer-encoding", "accept", "accept-encoding",
        "expect", "keep-alive", "te", "upgrade", CHAT_HEADER,
    )
)  # fmt: skip


class AdapterApp:
    """The ASGI application. `library` is LiteLLM."""

    def __init__(self, library: Any) -> None:
        self._library = library

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = read_headers(scope)
        try:
            data = await read_body(receive, headers, sys.maxsize)  # the proxy has kept to its limit
        except Disconnected:
            return
        if scope["path"] == OTHER_PATH:
            answer = answer_by_other(self._library, decode_object(data), send)
        else:
            answer = _DialectExchange(self._library, scope["path"], headers, send).run(data)
        await answer_unless_gone(receive, answer)


class _DialectExchange:
    """One request of a dialect and its response."""

    def __init__(self, library: Any, path: str, headers: Mapping[str, str], send: Send) -> None:
        self._library = library
        self._path = path
        self._counting = path in COUNTING
        self._dialect = DIALECTS[COUNTING.get(path, path)]
        self._url = headers[CHAT_HEADER] + "/v1"
        self._forwarded = {name: value for name, value in headers.items() if name not in _NOT_FORWARDED}
        self._send = send
        self._stream: EventStream | None = None
        self._writer: DialectWriter | None = None
        self._response_headers: dict[str, str] = {}

    async def run(self, data: bytes) -> None:
        """Answer the request, in one piece, as a stream or with an error."""
        try:
            body = decode_object(data)
            if self._dialect is not MESSAGES:
                body = await self._with_history(body)
            if self._dialect is RESPONSES and is_triggered(body):
                self._dialect = COMPACTION
            await self._answer(body)
        except RequestError as error:
            await self._fail(error)
        except OSError as error:
            log.info("the connection broke: %s", error)
        except Exception:
            log.exception("ERROR in the adapter of %s; please report it", self._path)
            await self._fail(internal_error())

    async def _with_history(self, body: dict[str, Any]) -> dict[str, Any]:
        """The body with what it only names, out of the proxy's journal: single items, and the conversation that
        `previous_response_id` continues.
        """
        referenced, previous = referenced_turns(body), previous_turn(body)
        if not referenced and previous is None:
            return body
        limits = httpx.Limits(max_connections=LOOK_UPS)
        async with httpx.AsyncClient(verify=tls(), timeout=30.0, limits=limits) as client:
            if referenced:
                found = await asyncio.gather(*(self._look_up(client, f"{one}/answer") for one in referenced))
                answers = {
                    one: shown["answer"] if shown else None for one, shown in zip(referenced, found, strict=True)
                }
                body = with_items(body, answers)
            if previous is None:
                return body
            shown = await self._look_up(client, previous)
        if shown is None:
            raise unknown_previous(body["previous_response_id"])
        return continued(body, shown["turn"])

    async def _look_up(self, client: httpx.AsyncClient, turn: str) -> dict[str, Any] | None:
        """A route about a turn, as the proxy answers it; `None` if it has no such turn."""
        response = await client.get(f"{self._url}/rl/turns/{turn}", headers=self._forwarded)
        if response.status_code == 404:
            return None
        if response.status_code != 200:
            raise NotFound(f"The previous response cannot be read: {response.text[:300]}", status=response.status_code)
        shown: dict[str, Any] = response.json()
        return shown

    async def _answer(self, body: Mapping[str, Any]) -> None:
        request = self._dialect.read(body)
        call = LiteLLMCall(self._url, self._forwarded, request.extra, counting=self._counting)
        writer = self._writer = self._dialect.writer(body, call)
        stream = request.stream and not self._counting
        async with self._in_library(call):
            result = await getattr(self._library, self._dialect.method)(stream=stream, **request.arguments)
            if stream:
                await self._send_stream(result, call, writer)
                return
        if self._counting:
            response = json_response({"object": "response.input_tokens", "input_tokens": call.input_tokens})
        else:
            response = json_response(writer.whole(result), headers={**call.response_headers, **writer.headers})
        await send_response(response, self._send)

    @contextlib.asynccontextmanager
    async def _in_library(self, call: LiteLLMCall) -> AsyncIterator[None]:
        """Around all work of LiteLLM: translates its errors, and ends the proxy's work at the end."""
        token = CALL.set(call)
        try:
            yield
            if call.refusal is not None:  # LiteLLM swallows some
                raise EOFError
        except (RequestError, OSError):
            raise
        except Exception as error:  # LiteLLM raises exceptions of any kind
            raise self._translate(error, call) from error
        finally:
            CALL.reset(token)
            self._response_headers = call.response_headers
            await call.close()

    def _translate(self, error: Exception, call: LiteLLMCall) -> RequestError:
        refusal = call.refusal
        if refusal is None and not call.begun:
            what = str(error).partition("Traceback (most recent call last)")[0].strip()[:300]
            log.info("LiteLLM could not translate a request: %s", what)
            return BadRequest(f"The request could not be read: {what}", code="invalid_value")
        if refusal is None:
            log.error("ERROR in LiteLLM's adapter; please report it", exc_info=error)
            return RequestError("The answer could not be translated; the proxy's log says why.", status=500)
        param = refusal.error.get("param")
        translated = RequestError(
            refusal.message,
            code=refusal.error.get("code"),
            param=self._dialect.parameters.get(param, param) if isinstance(param, str) else None,
            status=refusal.status,
            retry_after=refusal.retry_after,
        )
        translated.type = str(refusal.error.get("type") or translated.type)
        return translated

    async def _send_stream(self, events: AsyncIterator[Any], call: LiteLLMCall, writer: DialectWriter) -> None:
        """Pass events on. Nothing leaves before the proxy has begun to answer: until then this can become an error."""
        pending: list[Any] = []
        following = asyncio.ensure_future(anext(events))
        try:
            while True:
                done, _ = await asyncio.wait((following,), timeout=PING_SECONDS)
                if not done:
                    if call.begun:
                        await self._begun_stream(call).write(PING)
                    continue
                try:
                    pending.append(following.result())
                except StopAsyncIteration:
                    break
                following = asyncio.ensure_future(anext(events))
                if call.begun:
                    data = b"".join(map(writer.event, pending))
                    pending.clear()
                    if data:
                        await self._begun_stream(call).write(data)
        finally:
            following.cancel()
            with contextlib.suppress(asyncio.CancelledError, StopAsyncIteration, Exception):
                await following
        if call.refusal is not None:
            return
        last = b"".join(map(writer.event, pending))
        if not writer.ended:
            raise EOFError("the stream ended without its last event")
        await self._begun_stream(call).end(last)

    def _begun_stream(self, call: LiteLLMCall) -> EventStream:
        if self._stream is None:
            shown = {**call.response_headers, **(self._writer.headers if self._writer is not None else {})}
            headers = [(name.encode(), value.encode("latin-1")) for name, value in shown.items()]
            self._stream = EventStream(self._send, headers)
        return self._stream

    async def _fail(self, error: RequestError) -> None:
        """Send the error, in the stream if that has begun."""
        with contextlib.suppress(OSError):
            if self._stream is not None and self._stream.started and self._writer is not None:
                await self._stream.end(self._writer.failure(error))
            else:
                await send_response(dialect_response(self._path, error, self._response_headers), self._send)


def _load() -> Any:
    """LiteLLM, imported by a thread that gets only spare CPU time. Raises `ConfigError`."""
    loaded: list[Any] = []

    def work() -> None:
        if sys.platform.startswith("linux"):  # elsewhere priorities belong to processes, and cannot be raised again
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOADING_PRIORITY)
        try:
            loaded.append(register())
        except ModuleNotFoundError as error:
            loaded.append(ConfigError(f"the dialects need the module {error.name!r}: {install_command('dialects')}"))

    thread = threading.Thread(target=work, name="load-litellm", daemon=True)  # SIGTERM does not wait for it
    thread.start()
    thread.join()
    if not loaded or isinstance(loaded[0], ConfigError):
        raise loaded[0] if loaded else ConfigError("LiteLLM could not be loaded; the log says why")
    return loaded[0]


def main(path: str, log_level: str) -> int:
    """Serve on the Unix socket `path` until SIGTERM; write `READY` to stdout once requests are taken."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the proxy gets it too, and ends this process
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    die_with_parent()
    configure_logs("adapter", log_level)
    for name in ("LiteLLM", "LiteLLM Router", "httpx"):  # they log every refused request as an error
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        library = _load()
    except ConfigError as error:
        print(f"ERROR: {error}", file=sys.stderr)
        return 2
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(1024)
    gc.freeze()
    config = uvicorn.Config(
        AdapterApp(library),
        loop="uvloop",
        http="httptools",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    sys.stdout.buffer.write(READY)
    sys.stdout.buffer.flush()
    uvicorn.Server(config).run(sockets=[listener])
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
