"""HTTP/1.1 to one server, for answers that come token by token.

Every event of a chat's stream passes here (`docs/overhead.md`), so this client does what the engine's needs and nothing
else: connections that are kept and used again, one request at a
time on each, a body read as it comes. httptools, the parser beneath uvicorn, reads the protocol.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
import time
from typing import cast
from urllib.parse import unquote, urlsplit

import httptools

KEEP_SECONDS = 30.0
"""A connection that was idle for longer is not used again: the server may be about to close it."""

_CONNECT_SECONDS = 5.0
_HIGH_WATER = 1 << 18  # unread bytes; the server waits from there on


class Broken(ConnectionError):
    """The connection ended, or said something that is not HTTP, before the answer was complete."""


class HttpClient:
    """Requests to the server at `url` (http or https; a user name and a password in it are sent as basic
    authentication). May be made outside an event loop; used in one at a time.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        secure = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if secure else 80)
        self._tls = ssl.create_default_context() if secure else None  # reads files: once, and not while others wait
        self._path = parts.path.rstrip("/")
        named = parts.netloc.rpartition("@")[2]
        head = f"host: {named}\r\nuser-agent: openclaw-rl\r\naccept: */*\r\ncontent-type: application/json\r\n"
        if parts.username is not None:
            secret = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            head += f"authorization: Basic {base64.b64encode(secret.encode()).decode()}\r\n"
        self._head = head
        self._loop: asyncio.AbstractEventLoop | None = None
        self._idle: list[_Connection] = []
        self._open: set[_Connection] = set()

    async def send(self, method: str, path: str, body: bytes = b"") -> Reply:
        """Send a request; returns as soon as that is done. Raises `OSError` when the server cannot be reached, and
        `TimeoutError` when that takes too long.
        """
        connection = self._kept() or await self._connect()
        head = f"{method} {self._path}{path} HTTP/1.1\r\n{self._head}content-length: {len(body)}\r\n\r\n"
        return connection.ask(head.encode("latin-1"), body)

    def close(self) -> None:
        """Close all connections; requests on their way end with `Broken`."""
        for connection in list(self._open):
            connection.close()
        self._idle.clear()

    def _kept(self) -> _Connection | None:
        """The connection that was used last, so that the others grow old."""
        if self._loop is not asyncio.get_running_loop():
            return None
        while self._idle:
            connection = self._idle.pop()
            if connection.usable():
                return connection
            connection.close()
        return None

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop = loop
            self._idle.clear()
            self._open.clear()
        async with asyncio.timeout(_CONNECT_SECONDS):
            _, connection = await loop.create_connection(
                lambda: _Connection(self._idle, self._open), self._host, self._port, ssl=self._tls
            )
        return connection


class Reply:
    """The server's answer to one request. `status` is known once `head` has returned; `kept_alive` says that the
    answer is complete and the server lets its connection be used again.
    """

    __slots__ = (
        "_chunks", "_complete", "_connection", "_delimited", "_error", "_parser", "_size", "_timer", "_waiter",
        "kept_alive", "status",
    )  # fmt: skip

    def __init__(self, connection: _Connection) -> None:
        self.status = 0
        self.kept_alive = False
        self._connection = connection
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        self._chunks: list[bytes] = []
        self._size = 0
        self._complete = False
        self._delimited = False  # whether the head says where the body ends; else the connection's end does
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def head(self) -> int:
        """Wait for the status. Raises `Broken`, or `TimeoutError` after `expire`."""
        while not self.status:
            await self._more()
        return self.status

    async def read(self) -> bytes:
        """The next part of the body, at least a byte; empty at its end. Raises `Broken`, or `TimeoutError`
        after `expire`.
        """
        while not self._chunks:
            if self._complete:
                return b""
            await self._more()
        chunks, self._chunks = self._chunks, []
        if self._size > _HIGH_WATER:
            self._connection.resume()
        self._size = 0
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def body(self) -> bytes:
        """The rest of the body."""
        chunks = []
        while chunk := await self.read():
            chunks.append(chunk)
        return b"".join(chunks)

    @property
    def complete(self) -> bool:
        """True if everything has come, read or not."""
        return self._complete

    def expire(self, seconds: float) -> None:
        """Give up so many seconds from now. One timer for the whole answer, since one a read would cost as much as the
        read.
        """
        if self._timer is not None:
            self._timer.cancel()
        if not self._complete:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0.0, seconds), self.fail, TimeoutError("no answer in time"))

    def close(self) -> None:
        """Done with it. A connection whose answer is complete is kept for the next request, else it is closed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._connection.release(self)
        self._parser = None  # it refers to this object

    def fail(self, error: Exception) -> None:
        """End the answer with an error, unless it is complete."""
        if not self._complete and self._error is None:
            self._error = error
            self._wake()

    def feed(self, data: bytes) -> None:
        """Take bytes from the connection."""
        assert self._parser is not None
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.fail(Broken(f"that is not HTTP: {error}"))
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def ended(self, error: Exception | None) -> None:
        """The connection is gone."""
        if error is None and self.status and not self._delimited:
            self._complete = True
            self._wake()
        else:
            self.fail(Broken(str(error) if error else "the server closed the connection"))

    async def _more(self) -> None:
        if self._error is not None:
            raise self._error
        waiter = self._waiter = self._connection.loop.create_future()
        try:
            await waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # What httptools calls

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() in (b"content-length", b"transfer-encoding"):
            self._delimited = True

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        status = self._parser.get_status_code()
        if status >= 200:  # what comes before is no answer yet (RFC 9110, 15.2)
            self.status = status

    def on_body(self, data: bytes) -> None:
        self._chunks.append(data)
        self._size += len(data)
        if self._size > _HIGH_WATER:
            self._connection.pause()

    def on_message_complete(self) -> None:
        if self.status:
            assert self._parser is not None
            self._complete = True
            self.kept_alive = self._delimited and bool(self._parser.should_keep_alive())


class _Connection(asyncio.Protocol):
    """One connection; `idle` and `opened` are the client's."""

    def __init__(self, idle: list[_Connection], opened: set[_Connection]) -> None:
        self.loop = asyncio.get_running_loop()
        self._idle = idle
        self._opened = opened
        self._reply: Reply | None = None
        self._lost = False
        self._paused = False
        self._since = 0.0

    def ask(self, head: bytes, body: bytes) -> Reply:
        """Send a request."""
        reply = self._reply = Reply(self)
        self._transport.writelines((head, body) if body else (head,))
        return reply

    def usable(self) -> bool:
        """True if a request may be sent on it."""
        return not self._lost and not self._transport.is_closing() and time.monotonic() - self._since < KEEP_SECONDS

    def release(self, reply: Reply) -> None:
        """The reply is done with: keep the connection, or close it."""
        if self._reply is not reply:
            return
        self._reply = None
        if self._lost or not reply.kept_alive:
            self.close()
            return
        self.resume()
        self._since = time.monotonic()
        self._idle.append(self)

    def pause(self) -> None:
        """Let the server wait until the body is read."""
        if not self._paused and not self._lost:
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self._paused and not self._lost:
            self._paused = False
            self._transport.resume_reading()

    def close(self) -> None:
        """Hang up."""
        if self._reply is not None:
            self._reply.fail(Broken("the connection was closed"))
        self._transport.abort()

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._opened.add(self)

    def data_received(self, data: bytes) -> None:
        if self._reply is None:
            self.close()  # there was no request
        else:
            self._reply.feed(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._lost = True
        self._opened.discard(self)
        if self._reply is not None:
            self._reply.ended(error)
