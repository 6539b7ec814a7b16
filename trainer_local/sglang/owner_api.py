"""The owner's HTTP API on loopback: `POST /load`, and `POST /lease` for what a client does itself while SGLang is
paused: bring full weights, or use the memory. A lease that is not renewed, since its client was killed say, is undone.

What is served needs no route: clients read it from SGLang (`versions.read_held`), so chat does not depend on this.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from openclaw_rl.shared.engine.server import Json
from openclaw_rl.shared.errors import EngineError
from openclaw_rl.shared.files import write_json
from openclaw_rl.shared.records import new_id
from openclaw_rl.trainer_local.sglang.owner import Owner
from openclaw_rl.trainer_local.sglang.owner_client import LEASE_SECONDS, LeaseRequest, LoadRequest

log = logging.getLogger(__name__)


class Lease:
    """What a client holds: `held` is entered now, and left when the client ends the lease, abandons it, or stops
    renewing it.
    """

    def __init__(self, held: AbstractAsyncContextManager[bool]) -> None:
        self._news: asyncio.Queue[str] = asyncio.Queue()
        self._granted: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._hold(held))

    async def granted(self) -> bool:
        """Wait for it; whether there is anything to hold. Raises `EngineError`."""
        waiting: list[asyncio.Future[Any]] = [self._granted, self._task]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if not self._granted.done():
            await self._task  # raises why it could not be granted
        return self._granted.result()

    def when_left(self, call: Callable[[], Any]) -> None:
        """Have something called then."""

        def left(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                log.warning("a lease on SGLang ended: %s", error)
            call()

        self._task.add_done_callback(left)

    def renew(self) -> None:
        """Begin its time again."""
        self._news.put_nowait("renew")

    async def leave(self, *, done: bool) -> None:
        """End it, with its work `done` or abandoned. Raises `EngineError`."""
        self._news.put_nowait("end" if done else "abandon")
        try:
            await asyncio.shield(self._task)
        except EngineError:
            if done:
                raise

    async def _hold(self, held: AbstractAsyncContextManager[bool]) -> None:
        async with held as given:
            self._granted.set_result(given)
            news = "renew" if given else "end"
            while news == "renew":
                try:
                    async with asyncio.timeout(LEASE_SECONDS):
                        news = await self._news.get()
                except TimeoutError:
                    raise EngineError("its client is gone, so what it was for is undone", status=409) from None
            if news == "abandon":
                raise EngineError("its client gave it up", status=409)


def create_app(owner: Owner) -> Starlette:
    """The controller's API around `owner`."""
    leases: dict[str, Lease] = {}

    async def load(request: Request) -> dict[str, Any]:
        wanted = msgspec.json.decode(await request.body(), type=LoadRequest)
        await owner.load(wanted.version, wanted.path, live=wanted.live)
        return {}

    async def grant(request: Request) -> dict[str, Any]:
        wanted = msgspec.json.decode(await request.body(), type=LeaseRequest)
        held = owner.lend(wanted.tags) if wanted.version is None else owner.change(wanted.version, wanted.path)
        lease = Lease(held)
        if not await lease.granted():
            await lease.leave(done=True)
            return {"lease": None}
        name = new_id("lease")
        leases[name] = lease
        lease.when_left(lambda: leases.pop(name, None))
        return {"lease": name}

    async def tell(request: Request) -> dict[str, Any]:
        name, action = request.path_params["name"], request.path_params["action"]
        lease = leases.get(name)
        if lease is None:
            raise EngineError(
                f"there is no lease {name}: it was not renewed in time, and what it was for has been undone", status=409
            )
        if action == "renew":
            lease.renew()
        else:
            await lease.leave(done=action == "end")
        return {}

    return Starlette(
        routes=[
            Route("/load", _answering(load), methods=["POST"]),
            Route("/lease", _answering(grant), methods=["POST"]),
            Route("/lease/{name}/{action}", _answering(tell), methods=["POST"]),
        ]
    )


def _answering(handle: Callable[[Request], Awaitable[dict[str, Any]]]) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        try:
            return Json(await handle(request))
        except msgspec.DecodeError as error:
            return Json({"message": str(error), "status": 400}, status_code=400)
        except EngineError as error:
            return Json({"message": str(error), "status": error.status}, status_code=error.status or 503)

    return endpoint


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the controller's."""
        yield


@contextlib.asynccontextmanager
async def listening(owner: Owner, card: Path | None) -> AsyncIterator[str]:
    """The API is reachable at the URL that the block gets; the file `card` names it meanwhile."""
    bound = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{bound.getsockname()[1]}"
    config = uvicorn.Config(create_app(owner), log_level="warning", access_log=False, timeout_graceful_shutdown=2)
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[bound]))
    if card is not None:
        write_json(card, {"url": url, "pid": os.getpid()})
    try:
        yield url
    finally:
        if card is not None:
            card.unlink(missing_ok=True)
        server.should_exit = True
        await asyncio.gather(serving, return_exceptions=True)
