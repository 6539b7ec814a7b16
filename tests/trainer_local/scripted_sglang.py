"""An engine that answers by script, and a client of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web

from openclaw_rl.shared.records import Sampling
from openclaw_rl.trainer_local.sglang.client import SglangEngine
from tests.trainer_local.serving import collect

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def event(ids: list[int], total: int, finish: dict[str, Any] | None = None, **meta: Any) -> bytes:
    """A streamed event with logprobs −id/10."""
    body = {
        "output_ids": ids,
        "meta_info": {
            "finish_reason": finish,
            "completion_tokens": total,
            "prompt_tokens": 3,
            "weight_version": "default",
            "output_token_logprobs": [[-token / 10, token, None] for token in ids],
            **meta,
        },
    }
    return b"data: " + msgspec.json.encode(body) + b"\n\n"


class Script:
    """A server that plays one handler for `/generate`, and counts the requests. With `handler_cancellation` a handler
    ends with its client's connection.
    """

    def __init__(self, handler: Handler, info: dict[str, Any], *, handler_cancellation: bool = False) -> None:
        self.requests: list[dict[str, Any]] = []
        self._handler = handler
        self._info = info
        self._handler_cancellation = handler_cancellation

    async def __aenter__(self) -> Script:
        async def generate(request: web.Request) -> web.StreamResponse:
            self.requests.append(msgspec.json.decode(await request.read()))
            return await self._handler(request)

        async def info(_: web.Request) -> web.Response:
            return web.json_response(self._info)

        app = web.Application()
        app.add_routes([web.post("/generate", generate), web.get("/model_info", info)])
        app.add_routes([web.get("/server_info", info), web.get("/v1/models", info)])
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=self._handler_cancellation)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        port = self._runner.addresses[0][1]
        self.engine = SglangEngine(f"http://127.0.0.1:{port}", request_timeout=5, patience=1)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.engine.close()
        await self._runner.cleanup()


OURS = {"openclaw_rl": True, "live": 0, "versions": [0], "context_length": 100, "vocab_size": 50}
SGLANGS = {
    "weight_version": "default",
    "model_path": "m",
    "max_total_num_tokens": 200,
    "data": [{"max_model_len": 300}],
    "sampling_mask_max_tokens": 50,
}


def plays(*pieces: bytes, status: int = 200, cut: bool = False) -> Handler:
    """Write the pieces, each in a packet of its own; with `cut` drop the connection instead of ending properly."""

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=status, headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
            await asyncio.sleep(0.01)
        if cut:
            assert request.transport is not None
            request.transport.abort()
        return response

    return handler


async def answer(handler: Handler, *, info: dict[str, Any] = OURS, **arguments: Any) -> Any:
    async with Script(handler, info) as script:
        return await collect(script.engine.generate([1, 2, 3], Sampling(max_tokens=20), **arguments))


DONE = {"type": "stop", "matched": 7}
