"""HTTP/1.1 to one server, for answers that come token by token.

Every event of a chat's stream passes here (`docs/overhead.md`), so this client does what the engine's needs and nothing
else: connections that are kept and used again, one request at a time on each, a body read as it comes. httptools, the
parser beneath uvicorn, reads the protocol.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
import time
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import httptools

KEEP_SECONDS = 30.0
"""A connection that was idle for longer is not used again: the server may be about to close it."""

_CONNECT_SECONDS = 5.0
_HIGH_WATER = 1 << 18  # unread bytes; the server waits from there on


class Broken(ConnectionError):
    """The connection ended, or said something that is not HTTP, before the answer was complete."""


class Silence(TimeoutError):
    """The server has sent nothing for as long as `Reply.limit_silence` allows."""


class _Reader(asyncio.StreamReader):
    """The bytes of a connection, up to its end or a `failure`. `idle` since a time (of the monotonic clock): no answer
    is due, so that what comes is `stray`.
    """

    idle: float | None = None
    stray = False
    failure: Exception | None = None

    def feed_data(self, data: Any) -> None:
        self.stray = self.stray or self.idle is not None
        if self.failure is None:
            super().feed_data(data)

    def set_exception(self, exc: Exception) -> None:
        """End here; what has come before is read first."""
        if self.failure is None:
            self.failure = exc
            self.feed_eof()


class _Protocol(asyncio.StreamReaderProtocol):
    def eof_received(self) -> bool:
        super().eof_received()
        return False  # a connection that the server closes is closed here too, and not when it is next needed


class _Connection(NamedTuple):
    reader: _Reader
    transport: asyncio.Transport

    def usable(self) -> bool:
        """True if a request may be sent on it."""
        reader = self.reader
        lost = reader.stray or reader.at_eof() or reader.failure is not None or self.transport.is_closing()
        return not lost and time.monotonic() - (reader.idle or 0.0) < KEEP_SECONDS

    def close(self) -> None:
        """Hang up; an answer on its way breaks off."""
        self.reader.set_exception(Broken("the connection was closed"))
        self.transport.abort()


def without_secret(url: str) -> str:
    """The URL as messages show it: without user name and password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


BEARER = "bearer"
"""User name in a URL whose password is a bearer token: `http://bearer:TOKEN@host`."""


def authorization(url: str) -> dict[str, str]:
    """The header that sends what a URL has before its host: a bearer token (`BEARER`), or a user name and a password
    as HTTP's basic authentication; none where it has neither.
    """
    parts = urlsplit(url)
    if parts.username is None:
        return {}
    user, password = unquote(parts.username), unquote(parts.password or "")
    if user == BEARER:
        return {"authorization": f"Bearer {password}"}
    return {"authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}


def authorized_as(url: str, known: str) -> str:
    """`url` with what `known` has before its host."""
    given = urlsplit(known).netloc.rpartition("@")[0]
    parts = urlsplit(url)
    return parts._replace(netloc=f"{given}@{parts.netloc}").geturl() if given else url


class HttpClient:
    """Requests to the server at `url` (http or https), with its `authorization`. May be made outside an event loop;
    used in one at a time.
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
        head += "".join(f"{name}: {value}\r\n" for name, value in authorization(url).items())
        self._head = head
        self._loop: asyncio.AbstractEventLoop | None = None
        self._idle: list[_Connection] = []
        self._busy: set[_Connection] = set()

    async def send(self, method: str, path: str, body: bytes = b"") -> Reply:
        """Send a request; returns as soon as that is done. Raises `OSError` when the server cannot be reached, and
        `TimeoutError` when that takes too long.
        """
        connection = self._kept() or await self._connect()
        connection.reader.idle = None
        self._busy.add(connection)
        head = f"{method} {self._path}{path} HTTP/1.1\r\n{self._head}content-length: {len(body)}\r\n\r\n".encode(
            "latin-1"
        )
        connection.transport.writelines((head, body) if body else (head,))
        return Reply(self, connection)

    def close(self) -> None:
        """Close all connections; requests on their way end with `Broken`."""
        for connection in (*self._idle, *self._busy):
            connection.close()
        self._idle.clear()
        self._busy.clear()

    def release(self, connection: _Connection, *, keep: bool) -> None:
        """Keep a connection for another request, or close it."""
        if connection not in self._busy:
            return
        self._busy.discard(connection)
        connection.reader.idle = time.monotonic()
        if keep:
            self._idle.append(connection)
        else:
            connection.close()

    def _kept(self) -> _Connection | None:
        """The connection that was used last, so that the others grow old."""
        while self._idle and self._loop is asyncio.get_running_loop():
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
            self._busy.clear()
        reader = _Reader(limit=_HIGH_WATER // 2, loop=loop)
        async with asyncio.timeout(_CONNECT_SECONDS):
            transport, _ = await loop.create_connection(
                lambda: _Protocol(reader, loop=loop), self._host, self._port, ssl=self._tls
            )
        return _Connection(reader, transport)


class Reply:
    """The server's answer to one request. `status` is known once `head` has returned; `complete` says that everything
    has come, read or not.
    """

    __slots__ = (
        *("_asked", "_chunks", "_client", "_connection", "_delimited", "_keeps", "_parser", "_silence", "_timer"),
        *("complete", "status"),
    )

    def __init__(self, client: HttpClient, connection: _Connection) -> None:
        self.status = 0
        self.complete = False
        self._client = client
        self._connection = connection
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        self._chunks: list[bytes] = []
        self._delimited = False  # whether the head says where the body ends; else the connection's end does
        self._keeps = False  # whether the server lets the connection be used again
        self._timer: asyncio.TimerHandle | None = None
        self._silence: asyncio.TimerHandle | None = None
        self._asked = 0.0  # when the read that now waits began, 0 while none does

    async def head(self) -> int:
        """Wait for the status. Raises `Broken`, or `TimeoutError` after `expire`."""
        while not self.status:
            await self._more()
        return self.status

    async def read(self) -> bytes:
        """The next part of the body, at least a byte; empty at its end. Raises `Broken`, or `TimeoutError`
        after `expire`.
        """
        while not self._chunks and not self.complete:
            await self._more()
        chunks, self._chunks = self._chunks, []
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def body(self) -> bytes:
        """The rest of the body."""
        chunks = []
        while chunk := await self.read():
            chunks.append(chunk)
        return b"".join(chunks)

    def expire(self, seconds: float) -> None:
        """Give up so many seconds from now. One timer for the whole answer, since one a read would cost as much as the
        read.
        """
        if self._timer is not None:
            self._timer.cancel()
        if not self.complete:
            loop, fail = asyncio.get_running_loop(), self._connection.reader.set_exception
            self._timer = loop.call_later(max(0.0, seconds), fail, TimeoutError("no answer in time"))

    def limit_silence(self, seconds: float) -> None:
        """Raise `Silence` in a read that waits so many seconds; time in which nothing is read does not count. One timer
        for the whole answer, as in `expire`.
        """

        def look() -> None:
            waited = time.monotonic() - self._asked if self._asked else 0.0
            if waited >= seconds:
                self._connection.reader.set_exception(Silence(f"nothing came for {seconds:g} s"))
            else:
                self._silence = loop.call_later(seconds - waited, look)

        loop = asyncio.get_running_loop()
        self._silence = loop.call_later(seconds, look)

    def close(self) -> None:
        """Done with it. A connection whose answer is complete is kept for the next request, else it is closed."""
        for timer in (self._timer, self._silence):
            if timer is not None:
                timer.cancel()
        self._timer = self._silence = None
        self._client.release(self._connection, keep=self._keeps)
        self._parser = None  # it refers to this object

    async def _more(self) -> None:
        assert self._parser is not None
        reader = self._connection.reader
        self._asked = time.monotonic()
        data = await reader.read(_HIGH_WATER)
        self._asked = 0.0
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            if not self.complete:
                raise Broken(f"that is not HTTP: {error}") from error
            reader.stray = True  # after the answer
        if data or self.complete:
            return
        self.complete = reader.failure is None and self.status > 0 and not self._delimited
        if isinstance(reader.failure, Broken | TimeoutError):
            raise reader.failure
        if not self.complete:
            raise Broken(str(reader.failure or "the server closed the connection")) from reader.failure

    # What httptools calls

    def on_message_begin(self) -> None:
        if self.complete:
            self._connection.reader.stray = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() in (b"content-length", b"transfer-encoding"):
            self._delimited = True

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        status = self._parser.get_status_code()
        if status >= 200 and not self.complete:  # what comes before is no answer yet (RFC 9110, 15.2)
            self.status = status

    def on_body(self, data: bytes) -> None:
        if not self.complete:
            self._chunks.append(data)

    def on_message_complete(self) -> None:
        if self.status and not self.complete:
            assert self._parser is not None
            self.complete = True
            self._connection.reader.idle = time.monotonic()
            self._keeps = self._delimited and bool(self._parser.should_keep_alive())
