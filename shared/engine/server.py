"""The HTTP server of our own engines, in the part of SGLang's native wire that we use.

Routes: `POST /generate`, `/abort_request`, `/update_weights_from_disk`; `GET /health`, `/model_info` (and its old name
`/get_model_info`). Differences from SGLang: prompts are token ids only (`input_ids`); streamed events carry no text;
`weight_version` in a request asks for a version; a weight update loads next to the old version instead of over it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import os
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping, Sequence
from typing import Any, Protocol

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from openclaw_rl.shared.engine.wire import (
    SECRET,
    AbortRequest,
    EngineJob,
    Event,
    GenerateRequest,
    Refused,
    UpdateWeights,
    decode,
    jsonable,
)
from openclaw_rl.shared.logs import get_log_ids, set_log_ids
from openclaw_rl.shared.process import is_local_name, is_loopback

log = logging.getLogger(__name__)

_BODY_LIMIT = 64 << 20
_TURN = re.compile(r"[0-9a-f]{32}")
"""The id of a request for a turn: the digits of the turn's id."""
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_SSE = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
_SSE_RAW = [(name.encode(), value.encode()) for name, value in _SSE.items()]


class ServedEngine(Protocol):
    """An engine behind the routes. `submit` and `load` raise `Refused`."""

    @property
    def healthy(self) -> bool:
        """True if requests are being worked on."""
        ...

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to serve; events are handed over in `loop`."""
        ...

    async def close(self) -> None:
        """End what is under way, and let go of everything."""
        ...

    async def submit(self, request: GenerateRequest, receive: Callable[[Event], None]) -> Any:
        """Queue a request; its events go to `receive`. A `EngineJob`."""
        ...

    def abort(self, job: Any) -> None:
        """End a job; nothing happens if it has ended."""
        ...

    def abort_rid(self, rid: str | None) -> None:
        """End every job of this request id; `None` ends all."""
        ...

    async def load(self, wanted: UpdateWeights) -> int:
        """Load a folder as a version; its number."""
        ...

    def live(self) -> int:
        """The live version."""
        ...

    def info(self) -> dict[str, Any]:
        """The body of `/model_info`."""
        ...

    def text(self, ids: Sequence[int]) -> str:
        """The text of an answer, "" without a tokenizer."""
        ...


class Json(Response):
    """A JSON response."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Encode with msgspec."""
        return msgspec.json.encode(content)


def _refusal(refused: Refused) -> Json:
    return Json(refused.body(), status_code=refused.status)


async def _body(request: Request) -> bytes:
    chunks = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > _BODY_LIMIT:
            raise Refused(f"the body is larger than {_BODY_LIMIT} bytes", 413)
        chunks.append(chunk)
    return b"".join(chunks)


class Generate:
    """`POST /generate`, raw ASGI: an event leaves as soon as its tokens are sampled, and a client that hangs up ends
    the work."""

    def __init__(self, engine: ServedEngine, *, incremental: bool) -> None:
        self._engine = engine
        self._incremental = incremental

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        try:
            await self._serve(scope, receive, send)
        except Refused as refused:
            await _refusal(refused)(scope, receive, send)
        except ClientDisconnect:
            return

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        events: asyncio.Queue[Event] = asyncio.Queue()
        request: GenerateRequest = decode(await _body(Request(scope, receive)), GenerateRequest)
        if request.rid is not None and _TURN.fullmatch(request.rid):
            set_log_ids(turn=f"turn_{request.rid}")
        try:
            job: EngineJob = await self._engine.submit(request, events.put_nowait)
        except Refused as refused:
            if not request.stream or refused.code != "context_length_exceeded":
                raise
            body = b"data: " + msgspec.json.encode(refused.body()) + b"\n\ndata: [DONE]\n\n"
            await Response(body, headers=_SSE)(scope, receive, send)  # SGLang answers 200 here
            return
        watch = asyncio.create_task(_gone(receive))
        work = asyncio.create_task(self._stream(job, events, send) if request.stream else self._whole(job, events))
        try:
            await asyncio.wait({work, watch}, return_when=asyncio.FIRST_COMPLETED)
            if work.done() and (whole := await work) is not None:
                await Json(whole)(scope, receive, send)
        finally:
            if get_log_ids():
                log.info("version %d sampled %d tokens", job.version.number, len(job.output))
            if not work.done():
                work.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await work
            watch.cancel()
            self._engine.abort(job)

    async def _stream(self, job: EngineJob, events: asyncio.Queue[Event], send: Send) -> None:
        report = _Report(job, incremental=self._incremental)
        started = False
        last = False
        while not last:
            news = [await events.get()]
            while not events.empty():
                news.append(events.get_nowait())
            last = news[-1].last
            error = news[-1].error
            if error is not None and not started:
                raise error
            for event in news:
                report.add(event)
            payload = msgspec.json.encode(error.body() if error else report.body(last=last))
            if not started:
                await send({"type": "http.response.start", "status": 200, "headers": _SSE_RAW})
                started = True
            body = b"data: " + payload + (b"\n\ndata: [DONE]\n\n" if last else b"\n\n")
            await send({"type": "http.response.body", "body": body, "more_body": not last})

    async def _whole(self, job: EngineJob, events: asyncio.Queue[Event]) -> dict[str, Any]:
        report = _Report(job, incremental=False)
        last = False
        while not last:
            event = await events.get()
            if event.error is not None:
                raise event.error
            report.add(event)
            last = event.last
        return report.body(last=True) | {"text": self._engine.text(job.output)}


class _Report:
    """The answer so far, as SGLang's JSON: with `incremental` each body has the news only, else everything from the
    start."""

    def __init__(self, job: EngineJob, *, incremental: bool) -> None:
        self._job = job
        self._incremental = incremental
        self._ids: list[int] = []
        self._logprobs: list[tuple[float, int, None]] = []
        self._top_logprobs: list[list[list[Any]]] = []
        self._count = 0
        self._finish: dict[str, Any] | None = None

    def add(self, event: Event) -> None:
        for choice in event.choices:
            self._count += 1
            self._ids.append(choice.id)
            self._logprobs.append((choice.logprob, choice.id, None))
            if self._job.top_logprobs:
                self._top_logprobs.append(jsonable(choice.top))
        self._finish = event.finish

    def body(self, *, last: bool) -> dict[str, Any]:
        job = self._job
        version = str(job.version.number)
        meta: dict[str, Any] = {
            "id": job.rid,
            "finish_reason": self._finish,
            "prompt_tokens": len(job.request.input_ids),
            "completion_tokens": self._count,
            "cached_tokens": job.cached,
            "weight_version": version,
        }
        if job.request.return_logprob:
            meta["output_token_logprobs"] = self._logprobs
            if job.top_logprobs:
                meta["output_top_logprobs"] = self._top_logprobs
        if last:
            meta["weight_versions"] = [{"version": version, "start": 0, "end": self._count}]
            meta["e2e_latency"] = time.monotonic() - job.arrived
            if job.score_from is not None:
                meta["input_token_logprobs"] = [(logprob, token, None) for logprob, token in job.input_logprobs]
                if job.request.top_logprobs_num:
                    meta["input_top_logprobs"] = [
                        None if top is None else jsonable(top) for top in job.input_top_logprobs
                    ]
        body = {"text": "", "output_ids": self._ids, "meta_info": meta}
        if self._incremental:
            self._ids, self._logprobs, self._top_logprobs = [], [], []
        return body


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


_SECRET_MISSING = "the engine has a secret: engine_url must be the URL that openclaw-rl serve --only engine shows"


class EngineGuard:
    """Refuses requests that do not come from this service: those of web pages, which carry an `Origin` or a body that
    is not called JSON (a page may send others anywhere), and with a `secret` those without it as their bearer token,
    as SGLang's `--api-key` does. Without a secret a page of a site whose name points to this machine could read: then
    requests from this machine name it as their `Host`. `/health` is open.
    """

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]], secret: str) -> None:
        self._app = app
        self._secret = secret

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        refused = self._refusal(scope) if scope["type"] == "http" else None
        await (self._app if refused is None else _refusal(refused))(scope, receive, send)

    def _refusal(self, scope: Scope) -> Refused | None:
        headers = Headers(scope=scope)
        if "origin" in headers:
            return Refused("the engine serves no web pages", 403)
        if scope["method"] == "POST" and not headers.get("content-type", "").startswith("application/json"):
            return Refused("the body must be application/json", 415)
        if scope["path"] == "/health":
            return None
        if not self._secret:
            host = headers.get("host", "")
            if is_local_name(host) or not is_loopback((scope.get("server") or ("",))[0]):
                return None
            return Refused(f"the engine has no secret, and {host!r} is not its address", 403)
        given = headers.get("authorization", "").encode()
        return None if hmac.compare_digest(given, f"Bearer {self._secret}".encode()) else Refused(_SECRET_MISSING, 401)


def create_app(engine: ServedEngine, *, incremental: bool = True, secret: str | None = None) -> Starlette:
    """The ASGI application around an engine; starts and stops it with the application's lifespan. `secret` is by
    default that in the environment.
    """
    secret = os.environ.get(SECRET, "") if secret is None else secret

    async def health(_: Request) -> Response:
        return Response(status_code=200 if engine.healthy else 503)

    async def model_info(_: Request) -> Response:
        return Json(engine.info())

    async def abort(request: Request) -> Response:
        try:
            wanted: AbortRequest = decode(await _body(request), AbortRequest)
        except Refused as refused:
            return _refusal(refused)
        engine.abort_rid(None if wanted.abort_all else wanted.rid)
        return Response(status_code=200)

    async def update(request: Request) -> Response:
        try:
            wanted: UpdateWeights = decode(await _body(request), UpdateWeights)
            number = await engine.load(wanted)
        except Refused as refused:
            return Json({"success": False, "message": refused.message, **refused.body()}, status_code=refused.status)
        message = f"version {number} is loaded" + (" and live" if engine.live() == number else "")
        return Json({"success": True, "message": message, "num_paused_requests": 0})

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        engine.start(asyncio.get_running_loop())
        try:
            yield
        finally:
            await engine.close()

    return Starlette(
        lifespan=lifespan,
        middleware=[Middleware(EngineGuard, secret=secret)],
        routes=[
            Route("/generate", Generate(engine, incremental=incremental), methods=["POST"]),
            Route("/abort_request", abort, methods=["POST"]),
            Route("/update_weights_from_disk", update, methods=["POST"]),
            Route("/health", health),
            Route("/model_info", model_info),
            Route("/get_model_info", model_info),
        ],
    )


def http_server(app: Starlette, *, host: str, port: int) -> uvicorn.Server:
    """The server of such an application, not yet running."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            host=host,
            port=port,
            log_level="warning",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=2,
            backlog=2048,
        )
    )


def live_version(text: str) -> tuple[int, str] | None:
    """The version of `--live NUMBER=FOLDER`; `None` for "". Raises `SystemExit` for anything else."""
    if not text:
        return None
    number, separator, path = text.partition("=")
    if not separator or not number.isdigit():
        raise SystemExit(f"--live {text!r}: write NUMBER=FOLDER")
    return int(number), path
