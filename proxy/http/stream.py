"""Streamed responses on the bare ASGI interface, with comments that keep idle connections open."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

from starlette.types import Send

from openclaw_rl.proxy.engine.watch import EngineWatch
from openclaw_rl.proxy.http.sse import HEADERS, PING

PING_SECONDS = 10.0
PULSE_SECONDS = 1.0


class EventStream:
    """Sends server-sent events. The status leaves with the first one: until then the answer can become an error.

    With `hold` nothing leaves before `end`, which sends everything at once. A client that does not read makes `write`
    wait, and so the engine: nothing piles up here.
    """

    __slots__ = ("_headers", "_last", "_pending", "_send", "_sending", "hold", "started")

    def __init__(self, send: Send, headers: Iterable[tuple[bytes, bytes]], *, hold: bool = False) -> None:
        self._send = send
        self._headers = [*HEADERS, *headers]
        self._pending: list[bytes] = []
        self._last = time.monotonic()
        self._sending = False
        self.hold = hold
        self.started = False

    def add_headers(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Add headers, unless they have been sent already."""
        if not self.started:
            self._headers += headers

    async def write(self, data: bytes) -> None:
        """Send events, after the status if they are the first."""
        if self.hold:
            self._pending.append(data)
            return
        if not self.started:
            await self._begin()
        self._last = time.monotonic()
        self._sending = True
        await self._send({"type": "http.response.body", "body": data, "more_body": True})
        self._sending = False

    async def end(self, data: bytes = b"") -> None:
        """Send the last events and close the response."""
        await self._begin()
        self._last = time.monotonic()
        self._sending = True
        await self._send({"type": "http.response.body", "body": b"".join([*self._pending, data])})

    async def pulse(self, current: float) -> None:
        """Send a comment, after the status if need be, where nothing was sent for a while."""
        if not self.hold and not self._sending and current - self._last >= PING_SECONDS:
            await self.write(PING)

    def unread(self, current: float) -> float:
        """Seconds for which the client has not read the data in flight."""
        return current - self._last if self._sending else 0.0

    async def _begin(self) -> None:
        if not self.started:
            self.started = True
            await self._send({"type": "http.response.start", "status": 200, "headers": self._headers})


class Pulse:
    """One task that keeps all streams of a process from looking dead, and cuts those that are not read.

    While the engine is away, a stream that has not begun stays silent: its answer may still become a 503.
    """

    def __init__(self, watch: EngineWatch, slow_seconds: float) -> None:
        self._watch = watch
        self._slow_seconds = slow_seconds
        self._streams: dict[EventStream, Callable[[], None]] = {}

    def add(self, stream: EventStream, cut: Callable[[], None]) -> None:
        """Watch a stream until `discard`; call `cut` when its client has read nothing for too long."""
        self._streams[stream] = cut

    def discard(self, stream: EventStream) -> None:
        """The stream has ended."""
        self._streams.pop(stream, None)

    async def run(self) -> None:
        """Send comments until cancelled."""
        while True:
            await asyncio.sleep(PULSE_SECONDS)
            current = time.monotonic()
            for stream in list(self._streams):
                if stream not in self._streams or not (stream.started or self._watch.ready):
                    continue
                if stream.unread(current) >= self._slow_seconds:
                    self._streams.pop(stream)()
                    continue
                try:
                    async with asyncio.timeout(1.0):
                        await stream.pulse(current)
                except TimeoutError:
                    continue  # its reader is stuck: no more comments, and in the end it is cut
                except OSError:
                    self.discard(stream)  # its reader is gone
