"""A streamed response on the bare ASGI interface, with comments that keep idle connections open."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

from starlette.types import Send

from proxy.engine_watch import EngineWatch
from proxy.sse import HEADERS, PING

PING_SECONDS = 10.0
PULSE_SECONDS = 1.0


class EventStream:
    """Sends server-sent events. The status leaves with the first one, so until then the answer can still become an
    error.

    With `hold` nothing leaves before `end`, which sends everything at once.
    """

    __slots__ = ("_headers", "_held", "_last", "_send", "hold", "started")

    def __init__(self, send: Send, headers: Iterable[tuple[bytes, bytes]], *, hold: bool = False) -> None:
        self._send = send
        self._headers = [*HEADERS, *headers]
        self._held: list[bytes] = []
        self._last = time.monotonic()
        self.hold = hold
        self.started = False

    async def write(self, data: bytes) -> None:
        """Send events, after the status if they are the first."""
        if self.hold:
            self._held.append(data)
            return
        await self._begin()
        self._last = time.monotonic()
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self, data: bytes = b"") -> None:
        """Send the last events and close the response."""
        await self._begin()
        await self._send({"type": "http.response.body", "body": b"".join([*self._held, data])})

    async def pulse(self, current: float) -> None:
        """Send a comment if nothing has left for a while; the status too, after a long wait for the first token."""
        if not self.hold and current - self._last >= PING_SECONDS:
            await self.write(PING)

    async def _begin(self) -> None:
        if not self.started:
            self.started = True
            await self._send({"type": "http.response.start", "status": 200, "headers": self._headers})


class Pulse:
    """One task that keeps all streams of a process from looking dead.

    While the engine is away, a stream that has not begun stays silent: its answer may still become a 503.
    """

    def __init__(self, watch: EngineWatch) -> None:
        self._watch = watch
        self._streams: set[EventStream] = set()

    def add(self, stream: EventStream) -> None:
        """Watch a stream until `discard`."""
        self._streams.add(stream)

    def discard(self, stream: EventStream) -> None:
        """The stream has ended."""
        self._streams.discard(stream)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(PULSE_SECONDS)
            current = time.monotonic()
            for stream in list(self._streams):
                if stream in self._streams and (stream.started or self._watch.ready):
                    try:
                        await asyncio.wait_for(stream.pulse(current), 1.0)
                    except (OSError, TimeoutError):
                        self._streams.discard(stream)  # a reader that is gone or stuck needs no comments
