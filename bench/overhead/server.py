"""How the arms that are not ours serve HTTP: as our proxy does, on uvicorn with uvloop and httptools."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from openclaw_rl.shared.process import die_with_parent


def serve(port: int, chat: Callable[[Request], Awaitable[Response]]) -> None:
    """Answer chat requests with `chat` until killed."""
    die_with_parent()
    app = Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"]), Route("/readyz", _ready)])
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=port,
        loop="uvloop",
        http="httptools",
        access_log=False,
        log_level="warning",
        backlog=2048,
    )


async def _ready(request: Request) -> Response:
    return PlainTextResponse("ok")
