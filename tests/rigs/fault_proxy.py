"""An HTTP proxy between a client and a server that fails on demand. It runs on a thread of its own, for tests of
either kind: `with FaultProxy(server_url) as proxy`, and the client is given `proxy.url`.

    proxy.answer(429, on="asample", times=2, headers={"Retry-After": "1"})
    lost = proxy.reset(on="optim_step", after=True, times=1)  # the server did it, the answer is lost
    lost.wait()
    proxy.stall(3.0, on="retrieve_future")
    proxy.refuse()
    proxy.clear()

The newest rule whose word is in the path decides about a request. `forwarded` and `answered` count by path what the
server and the client were given.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, TypeVar

import aiohttp
from aiohttp import web

SECONDS = 600.0
"""For one answer of the server."""
_CALL_SECONDS = 30.0
_HOST = "127.0.0.1"
_OF_CONNECTION = {"connection", "keep-alive", "transfer-encoding", "content-length", "te", "upgrade"}
"""Headers of one connection only (RFC 9110 section 7.6.1), and the length, which is computed again."""
_NONE_OF_ITS_OWN = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")

Forward = Callable[[], Awaitable[web.Response | None]]
Fault = Callable[[Forward], Awaitable[web.Response | None]]
"""What happens to a request, given what forwards it: the answer, or None to reset the connection."""
T = TypeVar("T")


@dataclass
class Rule:
    """A fault for requests whose path contains `on`, and whose body is `of` the right kind: for all, or for the next
    `times`. `met`: the number so far.
    """

    fault: Fault
    on: str
    times: int
    of: Callable[[bytes], bool] = lambda _: True
    met: int = 0
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def takes(self, path: str, body: bytes) -> bool:
        """Return whether it decides about this request; if so it has met one more."""
        with self._changed:
            if self.on not in path or (self.times and self.met >= self.times) or not self.of(body):
                return False
            self.met += 1
            self._changed.notify_all()
            return True

    def wait(self, count: int = 1, seconds: float = _CALL_SECONDS) -> None:
        """Return once it has met so many requests. Raises `TimeoutError`."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.met >= count, seconds):
                raise TimeoutError(f"{self.met} of {count} requests for {self.on!r} within {seconds:.0f} s")


@dataclass
class Seen:
    """A request as it came; `answer` is the status that the client was given, 0 for none (yet), `response` the rest."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    answer: int = 0
    response: web.Response | None = None

    def json(self) -> Any:
        """Its body."""
        return json.loads(self.body)


class FaultProxy:
    """The proxy, running until the block ends."""

    def __init__(self, server: str) -> None:
        """`server`: the URL that requests are forwarded to."""
        self.server = server.rstrip("/")
        self.forwarded: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self._rules: list[Rule] = []
        self._seen: list[Seen] | None = None
        self._stalls: list[asyncio.Event] = []
        self._handling: set[asyncio.Task[Any]] = set()
        self._runner: web.ServerRunner | None = None
        self._client: aiohttp.ClientSession | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault proxy", daemon=True)
        # Keeps the port while connections are refused: it is bound, and nothing listens.
        self._port = self._socket(0)

    @property
    def url(self) -> str:
        """The URL that the client is given; without a path."""
        return f"http://{_HOST}:{self._port.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        self._call(self._open())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._port.close()

    def answer(
        self,
        status: int,
        *,
        on: str = "",
        times: int = 0,
        headers: Mapping[str, str] | None = None,
        body: str = '{"detail": "a fault of the proxy"}',
    ) -> Rule:
        """Answer in the server's place."""

        async def fault(forward: Forward) -> web.Response | None:
            return web.Response(status=status, text=body, content_type="application/json", headers=headers)

        return self._add(fault, on, times)

    def reset(self, *, on: str = "", times: int = 0, after: bool = False) -> Rule:
        """Reset the connection, instead of asking the server or `after` it has answered."""

        async def fault(forward: Forward) -> web.Response | None:
            if after:
                await forward()
            return None

        return self._add(fault, on, times)

    def stall(self, seconds: float, *, on: str = "", times: int = 0, after: bool = False) -> Rule:
        """Wait before the server is asked, or `after` it has answered; `clear` ends the wait."""
        cleared = asyncio.Event()
        self._stalls.append(cleared)

        async def wait() -> None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(cleared.wait(), seconds)

        async def fault(forward: Forward) -> web.Response | None:
            if not after:
                await wait()
            answer = await forward()
            if after:
                await wait()
            return answer

        return self._add(fault, on, times)

    def refuse(self) -> None:
        """Refuse connections, and drop those that are open, until `clear`."""
        self._call(self._close())

    def clear(self) -> None:
        """Forget all rules, wake what is stalled, and take connections again."""
        self._call(self._clear())

    def record(self) -> list[Seen]:
        """Keep every request from now on: the list that they are put in."""
        self._seen = []
        return self._seen

    def _add(self, fault: Fault, on: str, times: int) -> Rule:
        rule = Rule(fault, on, times)
        self._rules.insert(0, rule)
        return rule

    async def _handle(self, request: web.BaseRequest) -> web.Response:
        task = asyncio.current_task()
        assert task is not None
        self._handling.add(task)
        try:
            return await self._answer(request)
        finally:
            self._handling.discard(task)

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        seen = Seen(request.method, request.path, dict(request.headers), await request.read())
        if self._seen is not None:
            self._seen.append(seen)

        async def forward() -> web.Response | None:
            return await self._forward(request, seen.body)

        rule = next((rule for rule in list(self._rules) if rule.takes(request.path, seen.body)), None)
        answer = await (rule.fault(forward) if rule else forward())
        if answer is None:
            _reset(request)
            return web.Response(status=500)  # no client is there to receive it
        seen.answer, seen.response = answer.status, answer
        self.answered[request.path] += 1
        return answer

    async def _forward(self, request: web.BaseRequest, body: bytes) -> web.Response | None:
        assert self._client is not None
        self.forwarded[request.path] += 1
        headers = [(name, value) for name, value in request.headers.items() if name.lower() not in _OF_CONNECTION]
        url = self.server + request.raw_path
        try:
            sent = self._client.request(request.method, url, data=body, headers=headers, allow_redirects=False)
            async with sent as answer:
                content = await answer.read()
        except aiohttp.ClientConnectionError:
            return None
        response_headers = [
            (name, value) for name, value in answer.headers.items() if name.lower() not in _OF_CONNECTION
        ]
        return web.Response(status=answer.status, body=content, headers=dict(response_headers))

    async def _open(self) -> None:
        if self._client is None:
            # Bodies are passed on as they came, compressed or not.
            self._client = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=SECONDS),
                auto_decompress=False,
                skip_auto_headers=_NONE_OF_ITS_OWN,
            )
        if self._runner is None:
            server = web.Server(self._handle, auto_decompress=False, access_log=None)
            self._runner = web.ServerRunner(server, shutdown_timeout=0.01)
            await self._runner.setup()
            await web.SockSite(self._runner, self._socket(self._port.getsockname()[1])).start()

    async def _close(self) -> None:
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await runner.cleanup()
        # aiohttp leaves them running whose client is gone.
        handling = list(self._handling)
        for task in handling:
            task.cancel()
        await asyncio.gather(*handling, return_exceptions=True)

    async def _clear(self) -> None:
        self._rules.clear()
        for cleared in self._stalls:
            cleared.set()
        self._stalls.clear()
        await self._open()

    async def _end(self) -> None:
        await self._close()
        if self._client is not None:
            await self._client.close()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_CALL_SECONDS)

    @staticmethod
    def _socket(port: int) -> socket.socket:
        bound = socket.socket()
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((_HOST, port))
        return bound


def _reset(request: web.BaseRequest) -> None:
    """End the client's connection with RST, as one does whose process died."""
    if request.transport is not None:
        # Lingering for no time has the kernel send RST in place of FIN (socket(7)).
        lingering = struct.pack("ii", 1, 0)
        request.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, lingering)
        request.transport.abort()
