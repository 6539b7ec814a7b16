"""The HTTP client against real sockets: keeping connections, and everything that a server can do wrong."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from openclaw_rl.shared.engine import http_client
from openclaw_rl.shared.engine.http_client import Broken, HttpClient

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def _request(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Head and body of a request."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    return head, await reader.readexactly(length)


@asynccontextmanager
async def _server(serve: Serve) -> AsyncIterator[int]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def _fetch(client: HttpClient, body: bytes = b"", path: str = "/") -> tuple[int, bytes]:
    reply = await client.send("POST", path, body)
    reply.expire(5.0)
    try:
        return await reply.head(), await reply.body()
    finally:
        reply.close()


def _whole(body: bytes, *headers: bytes) -> bytes:
    return b"\r\n".join([b"HTTP/1.1 200 OK", b"content-length: %d" % len(body), *headers, b"", body])


async def test_a_connection_is_used_again() -> None:
    connections: list[int] = []
    seen: list[tuple[bytes, bytes]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(1)
        while True:
            seen.append(await _request(reader))
            writer.write(_whole(b"answer %d" % len(seen)))

    async with _server(serve) as port:
        client = HttpClient(f"http://user:p%40ss@127.0.0.1:{port}/base")
        answers = [await _fetch(client, b"one"), await _fetch(client, b"two", "/more")]
        client.close()
    assert answers == [(200, b"answer 1"), (200, b"answer 2")]
    assert len(connections) == 1 and [body for _, body in seen] == [b"one", b"two"]
    assert seen[1][0].startswith(b"POST /base/more HTTP/1.1\r\n")
    assert f"host: 127.0.0.1:{port}\r\n".encode() in seen[0][0]
    assert b"authorization: Basic dXNlcjpwQHNz\r\n" in seen[0][0]


async def test_a_connection_that_the_server_closed_or_that_is_old_is_not_used_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connections: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        await _request(reader)
        writer.write(_whole(b"x", *([b"connection: close"] if len(connections) == 1 else [])))
        await reader.read()

    async with _server(serve) as port:
        client = HttpClient(f"http://127.0.0.1:{port}")
        assert await _fetch(client) == (200, b"x")
        assert await _fetch(client) == (200, b"x")
        monkeypatch.setattr(http_client, "KEEP_SECONDS", 0.0)
        assert await _fetch(client) == (200, b"x")
        client.close()
    assert len(connections) == 3


async def test_a_body_comes_as_it_is_sent() -> None:
    ask = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _request(reader)
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n\r\n")
        writer.write(b"3\r\none\r\n")
        await ask.wait()
        writer.write(b"3\r\ntwo\r\n3\r\nend\r\n0\r\n\r\n")
        await reader.read()

    async with _server(serve) as port:
        client = HttpClient(f"http://127.0.0.1:{port}")
        reply = await client.send("GET", "/")
        reply.expire(5.0)
        assert await reply.head() == 201 and await reply.read() == b"one" and not reply.complete
        ask.set()
        assert await reply.body() == b"twoend" and reply.complete and await reply.read() == b""
        reply.close()
        client.close()


async def test_a_body_may_end_with_the_connection() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _request(reader)
        writer.write(b"HTTP/1.0 200 OK\r\n\r\nall of it")

    async with _server(serve) as port:
        client = HttpClient(f"http://127.0.0.1:{port}")
        assert await _fetch(client) == (200, b"all of it")
        client.close()


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nshort\r\n",
        b"SSH-2.0-OpenSSH_9.7\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nnot a length\r\n",
    ],
    ids=["nothing", "a part", "no last chunk", "another protocol", "no chunks"],
)
async def test_an_answer_that_breaks_off_is_an_error(said: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _request(reader)
        writer.write(said)

    async with _server(serve) as port:
        client = HttpClient(f"http://127.0.0.1:{port}")
        with pytest.raises(Broken):
            await _fetch(client)
        client.close()


async def test_a_silent_server_is_given_up() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with _server(serve) as port:
        client = HttpClient(f"http://127.0.0.1:{port}")
        reply = await client.send("POST", "/")
        reply.expire(0.05)
        with pytest.raises(TimeoutError):
            await reply.head()
        reply.close()


async def test_closing_early_hangs_up_and_nothing_else_does() -> None:
    left = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n")
        assert await reader.read() == b""
        left.set()

    async with _server(serve) as port:
        client = HttpClient(f"http://127.0.0.1:{port}")
        reply = await client.send("POST", "/")
        assert await reply.read() == b"one" and not left.is_set()
        reply.close()
        await asyncio.wait_for(left.wait(), 5)
        other = await client.send("POST", "/")
        await other.head()
        client.close()
        with pytest.raises(Broken):
            await other.body()


async def test_a_server_that_sends_faster_than_anyone_reads_has_to_wait() -> None:
    sent = 0
    piece = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await _request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for _ in range(600):
            writer.write(piece)
            await writer.drain()
            sent += 1
        writer.write(b"0\r\n\r\n")

    async with _server(serve) as port:
        client = HttpClient(f"http://127.0.0.1:{port}")
        reply = await client.send("POST", "/")
        await reply.head()
        last = -1
        while sent != last:  # until the server is stuck
            last = sent
            await asyncio.sleep(0.1)
        assert sent < 600
        assert len(await reply.body()) == 600 * 0x10000
        reply.close()
        client.close()


async def test_a_server_that_is_not_there_is_an_error() -> None:
    async with _server(lambda *_: asyncio.sleep(0)) as port:
        pass
    with pytest.raises(OSError):
        await HttpClient(f"http://127.0.0.1:{port}").send("GET", "/")


async def test_an_answer_before_a_reset_is_read() -> None:
    """The server answers and resets the connection before the client, which is busy, has read."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _request(reader)
        writer.write(_whole(b"answer"))
        await asyncio.sleep(0.05)
        own = writer.get_extra_info("socket")
        own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    async with _server(serve) as port:
        client = HttpClient(f"http://127.0.0.1:{port}")
        reply = await client.send("POST", "/")
        await asyncio.sleep(0.2)
        assert (await reply.head(), await reply.body()) == (200, b"answer")
        reply.close()
        client.close()


@pytest.mark.parametrize("pause", [0.0, 0.05])
async def test_a_second_answer_to_one_request_is_never_that_of_the_next(pause: float) -> None:
    connections: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(1)
        while True:
            _, body = await _request(reader)
            writer.write(_whole(body))
            await asyncio.sleep(pause)
            writer.write(_whole(b"of another"))

    async with _server(serve) as port:
        client = HttpClient(f"http://127.0.0.1:{port}")
        answers = []
        for body in (b"one", b"two"):
            reply = await client.send("POST", "/", body)
            answers.append((await reply.head(), await reply.body()))
            await asyncio.sleep(2 * pause)
            reply.close()
        client.close()
    assert answers == [(200, b"one"), (200, b"two")] and len(connections) == 2


async def test_connections_that_the_server_closes_are_closed_at_once() -> None:
    server_side: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_side.append(writer)
        await _request(reader)
        writer.write(_whole(b""))
        writer.write_eof()
        assert await reader.read() == b"", "the client closes its side too"
        server_side.remove(writer)

    async with _server(serve) as port:
        client = HttpClient(f"http://127.0.0.1:{port}")
        await _fetch(client)
        async with asyncio.timeout(5.0):
            while server_side:
                await asyncio.sleep(0.01)
        client.close()
