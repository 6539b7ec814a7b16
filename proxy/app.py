"""The application: its routes, the key that each needs, and its errors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from openclaw_rl.proxy.dashboard import pages, sign_in
from openclaw_rl.proxy.dashboard.tickets import Tickets
from openclaw_rl.proxy.dialects.errors import dialect_response
from openclaw_rl.proxy.dialects.process import CHAT
from openclaw_rl.proxy.http.auth import Admission, Caller, is_sign_in, needs_no_key
from openclaw_rl.proxy.http.body import Disconnected, read_headers
from openclaw_rl.proxy.http.errors import error_response, internal_error, to_request_error
from openclaw_rl.proxy.http.hosts import KnownHosts
from openclaw_rl.proxy.http.json import json_response
from openclaw_rl.proxy.http.tokens import TokenFile
from openclaw_rl.proxy.routes import control, conversations, lessons, system
from openclaw_rl.proxy.routes.chat import ChatRoute
from openclaw_rl.proxy.routes.dialects import ROUTES, DialectRoute, count_tokens, refuse_websocket
from openclaw_rl.proxy.routes.models import list_models, show_model
from openclaw_rl.proxy.routes.status import readiness
from openclaw_rl.proxy.service import ProxyService
from openclaw_rl.shared.api_keys import KeyFile
from openclaw_rl.shared.errors import Forbidden, JournalError, NotFound, OpenClawRLError, RequestError, Unauthorized
from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.process import is_local_name

CHAT_PATH = "/v1/chat/completions"


class KeyCheck:
    """Admits requests to a known name with a valid key; others get a 401 or 403 before their body is read. The page of
    the dashboard and signing in to it need no key.

    Chat requests go straight to their route, since each layer between would be called again for every event of a
    stream. `caller` in the scope is the `Caller`.
    """

    def __init__(
        self, app: ASGIApp, hosts: KnownHosts, admission: Admission, journal: AsyncJournal, chat: ASGIApp
    ) -> None:
        self._app = app
        self._hosts = hosts
        self._admission = admission
        self._journal = journal
        self._chat = chat

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] == "http":
            headers, method, path = read_headers(scope), scope["method"], scope["path"]
            is_page = pages.is_page(scope)
            try:
                self._hosts.check(headers, method, private=is_page or is_sign_in(path))
                if not is_page and not needs_no_key(method, path):
                    caller = self._admission.admit(headers, method, path)
                    scope["caller"] = await self._in_attempt(caller) if caller.claim is not None else caller
            except (Unauthorized, Forbidden, JournalError) as error:
                await dialect_response(path, to_request_error(error))(scope, receive, send)
                return
            if path == CHAT_PATH and method == "POST":
                await self._chat(scope, receive, send)
                return
        await self._app(scope, receive, send)

    async def _in_attempt(self, caller: Caller) -> Caller:
        """The caller with the attempt that its key is for. Raises `Unauthorized` if that is not under way."""
        claim = caller.claim
        attempt = await self._journal.open_attempt(claim.session_id) if claim is not None else None
        if claim is None or attempt is None or (attempt.episode, attempt.started) != (claim.episode, claim.started):
            raise Unauthorized("The API key is void: its episode has ended, or was forgotten.")
        return msgspec.structs.replace(caller, attempt=attempt)


def create_app(service: ProxyService) -> ASGIApp:
    """The ASGI application of a service; its lifespan starts and stops the service."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await service.start()
        try:
            yield
        finally:
            await service.stop()

    serve = service.settings.serve
    chat = ChatRoute(service)
    control_routes = (*conversations.ROUTES, *lessons.ROUTES, *system.ROUTES, *control.ROUTES)
    control_routes += sign_in.ROUTES if serve.dashboard else ()
    routes: list[BaseRoute] = [
        Route("/healthz", _health),
        Route("/readyz", _ready),
        Route("/metrics", _metrics),
        *(pages.routes() if serve.dashboard else ()),
        Route("/v1/models", list_models),
        Route("/v1/models/{model:path}", show_model),
        Route(CHAT_PATH, chat, methods=["POST"]),
        Route("/v1/chat/completions/input_tokens", count_tokens, methods=["POST"]),
        *(Route(path, DialectRoute(service, path), methods=["POST"]) for path in ROUTES),
        Route("/v1/responses", refuse_websocket, methods=["GET"]),
        *(
            Route(f"{prefix}{path}", endpoint, methods=[method])
            for prefix in ("/rl", "/v1/rl")
            for path, method, endpoint in control_routes
        ),
    ]
    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        exception_handlers={
            OpenClawRLError: _on_error,
            HTTPException: _on_http_exception,
            Disconnected: _on_disconnect,
            Exception: _on_bug,
        },
    )
    app.state.service = service
    admission = Admission(
        serve.api_keys,
        KeyFile(serve.data),
        lambda headers: service.dialects.dialect_of(headers) != CHAT,
        admin_key=serve.admin_key,
        tokens=TokenFile(serve.data),
    )
    app.state.admission = admission
    app.state.tickets = Tickets()
    return KeyCheck(app, KnownHosts(serve.host, serve.public_hosts), admission, service.journal, chat)


async def _health(request: Request) -> Response:
    return json_response({"status": "ok"})


async def _ready(request: Request) -> Response:
    state = readiness(request.app.state.service)
    shown = state if is_local_name(request.headers.get("host", "")) else {"ready": state["ready"]}
    return json_response(shown, 200 if state["ready"] else 503)


async def _metrics(request: Request) -> Response:
    service: ProxyService = request.app.state.service
    with suppress(JournalError):  # shown by /readyz; the other figures need no journal
        await service.metrics.steps.follow(service.journal)
        learner = (await service.journal.processes()).get("learner")
        service.metrics.learner_lag.set(0.0 if learner is None else learner.status.get("loop_lag", 0.0))
        service.metrics.show_audits(await service.journal.audit_figures())
    return Response(service.metrics.render(), media_type=CONTENT_TYPE_LATEST)


async def _on_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, OpenClawRLError)
    return error_response(to_request_error(error))


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = f"{request.method} {request.url.path}"
    if error.status_code == 404:
        return dialect_response(request.url.path, NotFound(f"There is no route {path}.", code="unknown_url"))
    refusal = RequestError(f"{path}: {error.detail}", status=error.status_code)
    return dialect_response(request.url.path, refusal, dict(error.headers or {}))


async def _on_disconnect(request: Request, error: Exception) -> Response:
    return Response(status_code=499)


async def _on_bug(request: Request, error: Exception) -> Response:
    return error_response(internal_error())
