"""The application: which path goes where, who is let in, and how errors look."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from openclaw_rl.proxy.dialects.errors import dialect_response
from openclaw_rl.proxy.dialects.gate import count_tokens
from openclaw_rl.proxy.engine.versions import available
from openclaw_rl.proxy.http.auth import OPEN_PATHS, authorize
from openclaw_rl.proxy.http.body import Disconnected, read_headers
from openclaw_rl.proxy.http.errors import error_response, json_response, to_request_error
from openclaw_rl.proxy.routes.chat import ChatRoute
from openclaw_rl.proxy.routes.control import Control
from openclaw_rl.proxy.routes.dialects import ROUTES, DialectRoute
from openclaw_rl.proxy.routes.status import readiness
from openclaw_rl.proxy.service import Service
from openclaw_rl.shared.errors import JournalError, NotFound, OpenClawRLError, RequestError, Unauthorized

Endpoint = Callable[[Request], Awaitable[Response]]


CHAT_PATH = "/v1/chat/completions"


class Guard:
    """Lets in who has the key; everybody else gets a 401 before anything of the request is read.

    It stands before everything, and chat requests go straight to their route: each layer between would be called again
    for every event of a stream.
    The scope tells them whose they are: `client_key` is the place of the key in the settings.
    """

    def __init__(self, app: ASGIApp, keys: Sequence[str], chat: ASGIApp) -> None:
        self._app = app
        self._keys = keys
        self._chat = chat

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            try:
                scope["client_key"] = authorize(read_headers(scope), self._keys)
            except Unauthorized as error:
                await dialect_response(scope["path"], error)(scope, receive, send)
                return
            if scope["path"] == CHAT_PATH and scope["method"] == "POST":
                await self._chat(scope, receive, send)
                return
        await self._app(scope, receive, send)


def create_app(service: Service) -> ASGIApp:
    """The ASGI application of a service; its lifespan starts and stops the service."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await service.start()
        try:
            yield
        finally:
            await service.stop()

    chat = ChatRoute(service)
    app = Starlette(
        routes=_routes(service, chat),
        lifespan=lifespan,
        exception_handlers={
            OpenClawRLError: _failed,
            HTTPException: _refused,
            Disconnected: _gone,
            Exception: _broken,
        },
    )
    app.state.service = service
    return Guard(app, service.settings.api_keys, chat)


def _routes(service: Service, chat: ChatRoute) -> list[BaseRoute]:
    control = Control()
    routes: list[BaseRoute] = [
        Route("/healthz", _health),
        Route("/readyz", _ready),
        Route("/metrics", _metrics),
        Route("/v1/models", _models),
        Route("/v1/models/{model:path}", _model),
        Route(CHAT_PATH, chat, methods=["POST"]),
        Route("/v1/chat/completions/input_tokens", count_tokens, methods=["POST"]),
    ]
    for path in ROUTES:
        routes.append(Route(path, DialectRoute(service, path), methods=["POST"]))
    for prefix in ("/rl", "/v1/rl"):
        for path, method, endpoint in (
            ("/feedback", "POST", control.feedback),
            ("/outcome", "POST", control.outcome),
            ("/session-done", "POST", control.session_done),
            ("/pause", "POST", control.pause),
            ("/resume", "POST", control.resume),
            ("/status", "GET", control.status),
            ("/sessions", "GET", control.sessions),
            ("/sessions/{session_id:path}", "GET", control.session),
            ("/sessions/{session_id:path}", "DELETE", control.forget),
            ("/turns/{turn_id}", "GET", control.turn),
            ("/versions", "GET", control.versions),
            ("/versions/{number}/promote", "POST", control.promote),
        ):
            routes.append(Route(prefix + path, endpoint, methods=[method]))
    return routes


async def _health(request: Request) -> Response:
    return json_response({"status": "ok"})


async def _ready(request: Request) -> Response:
    state = readiness(request.app.state.service)
    return json_response(state, 200 if state["ready"] else 503)


async def _metrics(request: Request) -> Response:
    service: Service = request.app.state.service
    with suppress(JournalError):  # told by /readyz; the other figures need no journal
        await service.metrics.steps.follow(service.journal)
        service.metrics.show_audits(await service.journal.audit_figures())
    return Response(service.metrics.render(), media_type=CONTENT_TYPE_LATEST)


async def _models(request: Request) -> Response:
    service: Service = request.app.state.service
    aliases = [name for name in service.names.listed if await _is_there(service, service.names.read(name)[1])]
    names = [*await service.versions.names(), *aliases]
    return json_response({"object": "list", "data": [_card(service, name) for name in names]})


async def _model(request: Request) -> Response:
    service: Service = request.app.state.service
    name = request.path_params["model"]
    _, version = service.names.read(name)
    if not await _is_there(service, version):
        raise service.names.unknown(service.names.served(version))
    return json_response(_card(service, name))


async def _is_there(service: Service, version: int | None) -> bool:
    if version is None or service.names.served(version) in await service.versions.names():
        return True
    known = await service.journal.version(version)
    return known is not None and available(known)


def _card(service: Service, name: str) -> dict[str, Any]:
    context = service.watch.context_length or service.prompter.context_length
    _, version = service.names.read(name)
    return {
        "id": name,
        "root": service.names.served(version),
        "object": "model",
        "created": int(service.started),
        "owned_by": "openclaw-rl",
        "context_length": context,
        "max_model_len": context,
        "input_modalities": ["text"] if service.reader.blind else ["text", "image"],
    }


async def _failed(request: Request, error: Exception) -> Response:
    assert isinstance(error, OpenClawRLError)
    return error_response(to_request_error(error))


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = f"{request.method} {request.url.path}"
    if error.status_code == 404:
        return dialect_response(request.url.path, NotFound(f"There is no route {path}.", code="unknown_url"))
    told = RequestError(f"{path}: {error.detail}", status=error.status_code)
    return dialect_response(request.url.path, told, dict(error.headers or {}))


async def _gone(request: Request, error: Exception) -> Response:
    return Response(status_code=499)


async def _broken(request: Request, error: Exception) -> Response:
    told = RequestError("Something went wrong in the proxy; its log says what.", status=500)
    return error_response(told)
