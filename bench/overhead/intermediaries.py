"""Run a proxy to compare ours with, on the same server as ours: uvicorn with uvloop and httptools.

    python -m bench.overhead.intermediaries PORT relay|litellm ENGINE_URL

`relay` forwards bytes with Starlette and aiohttp, the minimum of a correct proxy. `litellm` makes one streamed
`acompletion` per request and one event per chunk.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

Chat = Callable[[Request], Awaitable[Response]]


def relay(engine: str) -> Chat:
    """Forward requests and answers unchanged."""
    import aiohttp  # neither arm pays for the other's imports

    session: aiohttp.ClientSession | None = None

    async def chat(request: Request) -> Response:
        nonlocal session
        if session is None:  # it needs a running event loop
            session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30),
                timeout=aiohttp.ClientTimeout(total=None),
                headers={"content-type": "application/json"},
            )
        upstream = await session.post(f"{engine}/v1/chat/completions", data=await request.body())

        async def chunks() -> AsyncIterator[bytes]:
            async with upstream:
                async for chunk in upstream.content.iter_any():
                    yield chunk

        return StreamingResponse(chunks(), status_code=upstream.status, media_type="text/event-stream")

    return chat


def litellm(engine: str) -> Chat:
    """Answer requests with LiteLLM's SDK."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # otherwise the import downloads prices
    from litellm import acompletion

    async def chat(request: Request) -> Response:
        body: dict[str, Any] = msgspec.json.decode(await request.body())
        body["model"] = f"openai/{body['model']}"
        chunks = await acompletion(**body, api_base=f"{engine}/v1", api_key="none")

        async def events() -> AsyncIterator[bytes]:
            async for chunk in chunks:
                yield b"data: " + chunk.model_dump_json(exclude_none=True).encode() + b"\n\n"
            yield b"data: [DONE]\n\n"

        return StreamingResponse(events(), media_type="text/event-stream")

    return chat


def serve(port: int, chat: Chat) -> None:
    """Answer chat requests with `chat` until killed."""

    async def ready(_: Request) -> Response:
        return PlainTextResponse("ok")

    app = Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"]), Route("/readyz", ready)])
    options: dict[str, Any] = {"loop": "uvloop", "http": "httptools", "access_log": False, "log_level": "warning"}
    uvicorn.run(app, host="127.0.0.1", port=port, backlog=2048, **options)


if __name__ == "__main__":
    serve(int(sys.argv[1]), {"relay": relay, "litellm": litellm}[sys.argv[2]](sys.argv[3]))
