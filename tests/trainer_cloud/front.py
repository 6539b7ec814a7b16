"""An HTTP server in front of another one, or of none: it keeps what is sent, and answers, forwards or loses it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web

DROPPED = ("host", "content-length", "transfer-encoding", "content-encoding", "connection")


@dataclass(frozen=True)
class Sent:
    """A request. `path` has no query; `body` is its JSON, or `None`; `raw` are its bytes."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any
    raw: bytes = b""


@dataclass(frozen=True)
class Answer:
    """An answer: JSON, or `text` or `raw` bytes as they are."""

    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    text: str | None = None
    raw: bytes | None = None


class Lost:
    """The request is taken, and its answer never arrives: the connection breaks."""


class Silent:
    """The request is taken, and nothing comes back."""


Choose = Callable[[Sent], "Answer | Lost | Silent | None"]


class Front:
    """`answer` decides about each request; `None` forwards it. It may be replaced while the server runs."""

    def __init__(self, answer: Choose, target: str) -> None:
        self.answer = answer
        self.url = ""
        self.sent: list[Sent] = []
        self._target = target
        self.over = asyncio.Event()

    def posts(self, end: str) -> list[Sent]:
        """The POST requests whose path ends so."""
        return [one for one in self.sent if one.method == "POST" and one.path.endswith(end)]

    def asked(self, method: str, end: str) -> list[Sent]:
        """The requests of a method whose path ends so."""
        return [one for one in self.sent if one.method == method and one.path.endswith(end)]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """One request."""
        raw = await request.read()
        try:
            body = json.loads(raw) if raw else None
        except ValueError:
            body = None
        sent = Sent(request.method, request.path, dict(request.query), dict(request.headers), body, raw)
        self.sent.append(sent)
        chosen = self.answer(sent)
        if isinstance(chosen, Answer):
            if chosen.raw is not None:
                return web.Response(body=chosen.raw, status=chosen.status, headers=dict(chosen.headers))
            if chosen.text is not None:
                return web.Response(text=chosen.text, status=chosen.status, headers=dict(chosen.headers))
            return web.json_response(chosen.body, status=chosen.status, headers=dict(chosen.headers))
        if not self._target:
            if chosen is None:
                return web.json_response({"message": f"nothing is known of {request.path}"}, status=404)
            return await self._lose(request, chosen)
        headers = {name: value for name, value in request.headers.items() if name.lower() not in DROPPED}
        url = f"{self._target}{request.rel_url}"
        async with (
            aiohttp.ClientSession(auto_decompress=True) as http,
            http.request(request.method, url, data=raw, headers=headers) as answered,
        ):
            content = await answered.read()
        if chosen is not None:
            return await self._lose(request, chosen)
        response_headers = {name: value for name, value in answered.headers.items() if name.lower() not in DROPPED}
        return web.Response(body=content, status=answered.status, headers=response_headers)

    async def _lose(self, request: web.Request, how: Lost | Silent) -> web.Response:
        if isinstance(how, Silent):
            await self.over.wait()
        assert request.transport is not None
        request.transport.abort()
        return web.Response()


@contextmanager
def run_front(answer: Choose = lambda _: None, target: str = "") -> Iterator[Front]:
    """A front of `target` on a port of its own until the block ends."""
    front = Front(answer, target)
    ready, loop = threading.Event(), asyncio.new_event_loop()

    async def serve() -> None:
        app = web.Application(client_max_size=1 << 28)
        app.router.add_route("*", "/{path:.*}", front.handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        front.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        ready.set()
        await front.over.wait()
        await runner.cleanup()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield front
    finally:
        loop.call_soon_threadsafe(front.over.set)
        thread.join(10)
        loop.close()
