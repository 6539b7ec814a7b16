"""The owner's HTTP API on loopback: `POST /load`, and `POST /lease` for what a client does itself while SGLang is
paused: bring full weights, or use the memory. A lease that is not renewed, since its client was killed say, is undone.

Only who can read the file that names the owner knows its secret. What is served needs no route: clients read it from
SGLang (`versions.read_versions`), so chat does not depend on this.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from openclaw_rl.shared.engine.http_client import BEARER
from openclaw_rl.shared.engine.server import EngineGuard, Json
from openclaw_rl.shared.errors import EngineError
from openclaw_rl.shared.files import write_json
from openclaw_rl.trainer_local.sglang.owner import Owner
from openclaw_rl.trainer_local.sglang.owner_client import LEASE_SECONDS, LeaseRequest, LoadRequest

log = logging.getLogger(__name__)


class Lease:
    """Weights or memory in a client's hands: `resource` is entered now, and left when the client is done, gives up,
    or does not renew the lease in time.
    """

    def __init__(self, resource: AbstractAsyncContextManager[bool]) -> None:
        self.news: asyncio.Queue[str] = asyncio.Queue()
        self._given: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(self._hold(resource))

    async def given(self) -> bool:
        """Wait for its begin; whether there is anything to hold. Raises `EngineError`."""
        waiting: list[asyncio.Future[Any]] = [self._given, self.task]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        return self._given.result() if self._given.done() else await self.task

    async def _hold(self, resource: AbstractAsyncContextManager[bool]) -> bool:
        async with resource as given:
            self._given.set_result(given)
            news = "renew" if given else "done"
            while news == "renew":
                try:
                    async with asyncio.timeout(LEASE_SECONDS):
                        news = await self.news.get()
                except TimeoutError:
                    raise EngineError("a lease on SGLang was not renewed in time, so it is undone") from None
            if news == "give up":
                raise EngineError("a client gave up what it leased of SGLang, so it is undone")
        return given


def create_app(owner: Owner, secret: str) -> Starlette:
    """The API of `owner`, for those that know the `secret`."""
    leases: dict[str, Lease] = {}

    async def load(raw: bytes) -> bool:
        wanted = msgspec.json.decode(raw, type=LoadRequest)
        await owner.load(wanted.version, wanted.path, live=wanted.live)
        return True

    async def lease(raw: bytes) -> bool:
        wanted = msgspec.json.decode(raw, type=LeaseRequest)
        lease = leases.get(wanted.name)
        if lease is None:
            if wanted.news != "begin":
                raise EngineError("the lease was not renewed in time, and what it was for is undone", status=409)
            memory = wanted.version is None
            lease = Lease(owner.lend() if memory else owner.change(wanted.version or 0, wanted.path))
            leases[wanted.name] = lease
            lease.task.add_done_callback(lambda task: _end(task, leases.pop(wanted.name)))
        elif wanted.news != "begin":
            lease.news.put_nowait(wanted.news)
        try:
            return await asyncio.shield(lease.task) if wanted.news in ("done", "give up") else await lease.given()
        except EngineError:
            if wanted.news == "give up":
                return False
            raise

    return Starlette(
        middleware=[Middleware(EngineGuard, secret=secret)],
        routes=[Route("/load", _route(load), methods=["POST"]), Route("/lease", _route(lease), methods=["POST"])],
    )


def _end(task: asyncio.Task[bool], _: Lease) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.warning("%s", error)


def _route(handle: Callable[[bytes], Awaitable[bool]]) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        try:
            return Json({"done": await handle(await request.body())})
        except msgspec.DecodeError as error:
            return Json({"message": str(error), "status": 400}, status_code=400)
        except EngineError as error:
            return Json({"message": str(error), "status": error.status}, status_code=error.status or 503)

    return endpoint


class _LoopbackServer(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are left to the process."""
        yield


@contextlib.asynccontextmanager
async def listening(owner: Owner, card: Path | None) -> AsyncIterator[str]:
    """The API is reachable at the URL that the block gets; the file `card` names it meanwhile."""
    bound = socket.create_server(("127.0.0.1", 0))
    secret = secrets.token_hex(16)
    url = f"http://{BEARER}:{secret}@127.0.0.1:{bound.getsockname()[1]}"
    server = _LoopbackServer(uvicorn.Config(create_app(owner, secret), log_level="warning", access_log=False))
    serving = asyncio.create_task(server.serve(sockets=[bound]))
    if card is not None:
        write_json(card, {"url": url, "pid": os.getpid()}, mode=0o600)
    try:
        yield url
    finally:
        if card is not None:
            card.unlink(missing_ok=True)
        server.should_exit = server.force_exit = True
        await asyncio.gather(serving, return_exceptions=True)
