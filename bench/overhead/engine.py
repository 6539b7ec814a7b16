"""Run the synthetic engine: it answers every prompt with the same tokens, at once or at a steady pace.

    python -m bench.overhead.engine PORT

It serves the part of our engine protocol that a chat needs (`/generate`, `/model_info`, `/health`), and
`/v1/chat/completions` for the paths without our proxy. `POST /pace` sets the seconds between two tokens; 0 sends all of
them in one write. It uses the bare event loop to cost almost nothing, because it shares the cores with the processes
under test.
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import httptools
import msgspec
import uvloop

from bench.overhead.answers import MODEL, script

CONTEXT_LENGTH = 65536
_SCRIPT = script()
_STREAM = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
_END = b"0\r\n\r\n"
_INFO = msgspec.json.encode(
    {
        "openclaw_rl": True,
        "model_path": MODEL,
        "live": 0,
        "versions": [0],
        "weight_version": "0",
        "context_length": CONTEXT_LENGTH,
        "vocab_size": 4096,
    }
)
_MODELS = msgspec.json.encode({"object": "list", "data": [{"id": MODEL, "object": "model"}]})


class Pace:
    """Seconds between two tokens of answers that begin later."""

    seconds = 0.0


class ClientConnection(asyncio.Protocol):
    """One client's connection, with one request at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, pace: Pace) -> None:
        self._loop = loop
        self._pace = pace
        self._parser = httptools.HttpRequestParser(self)
        self._path = b""
        self._body = b""
        self._timer: asyncio.TimerHandle | None = None
        self._chunks: tuple[bytes, ...] = ()
        self._sent = 0
        self._started = 0.0
        self._step = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._path, self._body = url, b""

    def on_body(self, data: bytes) -> None:
        if self._path == b"/pace":  # other bodies are ignored
            self._body += data

    def on_message_complete(self) -> None:
        if self._path == b"/generate":
            self._answer(_SCRIPT.native)
        elif self._path == b"/v1/chat/completions":
            self._answer(_SCRIPT.chat)
        elif self._path == b"/pace":
            self._pace.seconds = float(self._body)
            self._respond(b"{}")
        else:
            self._respond(_INFO if self._path == b"/model_info" else _MODELS)

    def _respond(self, body: bytes) -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
        self._transport.write(head + body)

    def _answer(self, chunks: tuple[bytes, ...]) -> None:
        if not self._pace.seconds:
            self._transport.write(b"".join([_STREAM, *chunks, _END]))
            return
        self._transport.write(_STREAM + chunks[0])
        self._chunks, self._sent, self._step = chunks, 1, self._pace.seconds
        self._started = self._loop.time()
        self._timer = self._loop.call_later(self._step, self._tick)

    def _tick(self) -> None:
        """Send all due tokens; after a delay that is more than one, as with an engine under load."""
        due = min(len(self._chunks), 1 + int((self._loop.time() - self._started) / self._step + 1e-6))
        due = max(due, self._sent + 1)
        data = self._chunks[self._sent : due]
        self._sent = due
        if due == len(self._chunks):
            self._timer = None
            self._transport.write(b"".join([*data, _END]))
            return
        self._transport.write(data[0] if len(data) == 1 else b"".join(data))
        self._timer = self._loop.call_at(self._started + due * self._step, self._tick)


async def serve(port: int) -> None:
    """Serve until cancelled."""
    loop = asyncio.get_running_loop()
    pace = Pace()
    server = await loop.create_server(lambda: ClientConnection(loop, pace), "127.0.0.1", port, backlog=2048)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
