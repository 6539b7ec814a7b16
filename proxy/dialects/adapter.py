"""The adapter process: LiteLLM's adapters over our provider, for the proxy that started it and nobody else.

It listens on a socket that only its owner can reach, translates a request of a dialect into a chat request, sends that
to the proxy with the client's own headers, and translates the answer back. It keeps nothing: tokens are captured in the
proxy, beneath. It has LiteLLM to itself because that takes seconds to load and milliseconds of CPU a request, neither
of which a chat in progress may feel: loading runs at a low priority.
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
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from openclaw_rl.proxy.dialects.dialect import Ask, Dialect, DialectWriter
from openclaw_rl.proxy.dialects.errors import dialect_response
from openclaw_rl.proxy.dialects.fallback import answer_by_other
from openclaw_rl.proxy.dialects.headers import CHAT_HEADER, OTHER_PATH, READY
from openclaw_rl.proxy.dialects.messages import Messages
from openclaw_rl.proxy.dialects.responses import Responses, continued, previous_turn, unknown_previous
from openclaw_rl.proxy.http.body import Disconnected, answer_unless_gone, read_body, read_headers
from openclaw_rl.proxy.http.json import decode_object, json_response
from openclaw_rl.proxy.http.sse import PING
from openclaw_rl.proxy.http.stream import PING_SECONDS, EventStream
from openclaw_rl.shared.errors import BadRequest, ConfigError, NotFound, RequestError
from openclaw_rl.shared.extras import install_command
from openclaw_rl.shared.litellm.call import CALL, Call
from openclaw_rl.shared.litellm.provider import register, tls
from openclaw_rl.shared.process import die_with_parent

log = logging.getLogger(__name__)

LOADING_PRIORITY = 10  # a tenth of what a chat gets, where they compete
GRACE_SECONDS = 3

DIALECTS: Mapping[str, Dialect] = {"/v1/responses": Responses(), "/v1/messages": Messages()}
COUNTING = {"/v1/responses/input_tokens": "/v1/responses", "/v1/messages/count_tokens": "/v1/messages"}
_OWN_HEADERS = frozenset(
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
        await answer_unless_gone(receive, self._answer(scope["path"], headers, data, send))

    async def _answer(self, path: str, headers: dict[str, str], data: bytes, send: Send) -> None:
        if path == OTHER_PATH:
            await answer_by_other(self._library, decode_object(data), send)
            return
        counting = path in COUNTING
        dialect = DIALECTS[COUNTING.get(path, path)]
        url = headers[CHAT_HEADER] + "/v1"
        forwarded = {name: value for name, value in headers.items() if name not in _OWN_HEADERS}
        exchange = _Exchange(self._library, dialect, path, send)
        try:
            body = decode_object(data)
            if isinstance(dialect, Responses):
                body = await _with_history(body, url, forwarded)
            ask = dialect.read(body)
            call = Call(url, forwarded, ask.extra, counting=counting)
            await (exchange.counted(ask, call) if counting else exchange.answered(ask, call, body))
        except RequestError as error:
            await exchange.tell(error)
        except OSError as error:
            log.info("the connection broke: %s", error)
        except Exception:
            log.exception("ERROR in the adapter of %s; please report it", path)
            await exchange.tell(RequestError("Something went wrong in the proxy; its log says what.", status=500))


class _Exchange:
    """One request of a dialect and its response."""

    def __init__(self, library: Any, dialect: Dialect, path: str, send: Send) -> None:
        self._library = library
        self._dialect = dialect
        self._path = path
        self._send = send
        self._stream: EventStream | None = None
        self._writer: DialectWriter | None = None
        self._told: dict[str, str] = {}

    async def counted(self, ask: Ask, call: Call) -> None:
        """Answer with the length of the prompt."""
        counted = Ask(arguments=ask.arguments, extra=ask.extra, stream=False)
        async with self._asking(call):
            await self._dialect.ask(self._library, counted)
        await self._respond(json_response({"object": "response.input_tokens", "input_tokens": call.input_tokens}))

    async def answered(self, ask: Ask, call: Call, body: Mapping[str, Any]) -> None:
        """Answer, in one piece or as a stream."""
        writer = self._writer = self._dialect.writer(body, call)
        async with self._asking(call):
            result = await self._dialect.ask(self._library, ask)
            if ask.stream:
                await self._streamed(result, call, writer)
                return
        await self._respond(json_response(writer.whole(result), headers=call.response_headers))

    async def tell(self, error: RequestError) -> None:
        """Tell the client of a failure, in the stream if it has begun."""
        with contextlib.suppress(OSError):
            if self._stream is not None and self._stream.started and self._writer is not None:
                await self._stream.end(self._writer.failure(error))
            else:
                await self._respond(dialect_response(self._path, error, self._told))

    @contextlib.asynccontextmanager
    async def _asking(self, call: Call) -> AsyncIterator[None]:
        """Around everything that LiteLLM does: our own errors come out of it, and the proxy's work ends with it."""
        token = CALL.set(call)
        try:
            yield
            if call.refusal is not None:  # LiteLLM swallows some
                raise EOFError
        except (RequestError, OSError):
            raise
        except Exception as error:  # LiteLLM raises whatever it stumbles over
            raise self._failure(error, call) from error
        finally:
            CALL.reset(token)
            self._told = call.response_headers
            await call.close()

    def _failure(self, error: Exception, call: Call) -> RequestError:
        refusal = call.refusal
        if refusal is None and not call.begun:
            what = str(error).partition("Traceback (most recent call last)")[0].strip()[:300]  # LiteLLM tells all
            log.info("LiteLLM could not translate a request: %s", what)
            return BadRequest(f"The request could not be read: {what}", code="invalid_value")
        if refusal is None:
            log.error("ERROR in LiteLLM's adapter; please report it", exc_info=error)
            return RequestError("The answer could not be translated; the proxy's log says why.", status=500)
        param = refusal.error.get("param")
        told = RequestError(
            refusal.message,
            code=refusal.error.get("code"),
            param=self._dialect.parameters.get(param, param) if isinstance(param, str) else None,
            status=refusal.status,
            retry_after=refusal.retry_after,
        )
        told.type = str(refusal.error.get("type") or told.type)
        return told

    async def _streamed(self, events: AsyncIterator[Any], call: Call, writer: DialectWriter) -> None:
        """Pass events on. Nothing leaves before the proxy has begun to answer: until then this can become an error."""
        held: list[Any] = []
        following = asyncio.ensure_future(anext(events))
        try:
            while True:
                done, _ = await asyncio.wait((following,), timeout=PING_SECONDS)
                if not done:
                    if call.begun:
                        await self._begun(call).write(PING)
                    continue
                try:
                    held.append(following.result())
                except StopAsyncIteration:
                    break
                following = asyncio.ensure_future(anext(events))
                if call.begun:
                    data = b"".join(map(writer.event, held))
                    held.clear()
                    if data:
                        await self._begun(call).write(data)
        finally:
            following.cancel()
            with contextlib.suppress(asyncio.CancelledError, StopAsyncIteration, Exception):
                await following
        if call.refusal is not None:
            return
        last = b"".join(map(writer.event, held))
        if not writer.ended:
            raise EOFError("the stream ended without its last event")
        await self._begun(call).end(last)

    def _begun(self, call: Call) -> EventStream:
        if self._stream is None:
            self._stream = EventStream(
                self._send, [(n.encode(), v.encode("latin-1")) for n, v in call.response_headers.items()]
            )
        return self._stream

    async def _respond(self, response: Response) -> None:
        await self._send(
            {"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers}
        )
        await self._send({"type": "http.response.body", "body": response.body})


async def _with_history(body: dict[str, Any], url: str, headers: Mapping[str, str]) -> dict[str, Any]:
    """The body with the conversation that `previous_response_id` names, out of the proxy's journal."""
    turn_id = previous_turn(body)
    if turn_id is None:
        return body
    async with httpx.AsyncClient(verify=tls(), timeout=30.0) as client:
        response = await client.get(f"{url}/rl/turns/{turn_id}", headers=dict(headers))
    if response.status_code == 404:
        raise unknown_previous(body["previous_response_id"])
    if response.status_code != 200:
        raise NotFound(f"The previous response cannot be read: {response.text[:300]}", status=response.status_code)
    return continued(body, response.json()["turn"])


def _load() -> Any:
    """LiteLLM, imported by a thread that gets the CPU only when others leave it."""
    found: list[Any] = []

    def work() -> None:
        if sys.platform.startswith("linux"):  # elsewhere priorities belong to processes, and cannot be raised again
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOADING_PRIORITY)
        try:
            found.append(register())
        except ModuleNotFoundError as error:
            found.append(ConfigError(f"the dialects need the module {error.name!r}: {install_command('dialects')}"))

    thread = threading.Thread(target=work, name="load-litellm", daemon=True)  # being told to end does not wait for it
    thread.start()
    thread.join()
    if not found or isinstance(found[0], ConfigError):
        raise found[0] if found else ConfigError("LiteLLM could not be loaded; the log says why")
    return found[0]


def main(path: str, log_level: str) -> int:
    """Serve on the Unix socket `path` until told to end; writes `READY` to stdout once requests are taken."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the proxy is asked to end, and tells us
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    die_with_parent()
    logging.basicConfig(level=log_level, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for name in ("LiteLLM", "LiteLLM Router", "httpx"):  # they tell every refused request as an error of their own
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
