"""Heads of requests are bounded in size and time, before any key is checked."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn

from openclaw_rl.proxy.http import protocol
from openclaw_rl.proxy.http.protocol import BoundedProtocol

REQUEST = b"GET / HTTP/1.1\r\nhost: here\r\n"
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def served(slow: asyncio.Event | None = None) -> AsyncIterator[Callable[[], Awaitable[Stream]]]:
    """Opens connections to a server that answers every request, `slow` ones when the event is set."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if slow is not None:
            await slow.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    config = uvicorn.Config(app, port=0, http=BoundedProtocol, ws="none", lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    task = asyncio.create_task(server._serve())
    while not server.started:
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield lambda: asyncio.open_connection("127.0.0.1", port)
    server.should_exit = True
    await task


async def test_usual_requests_are_answered_one_after_another() -> None:
    async with served() as connect:
        reader, writer = await connect()
        for _ in range(3):
            writer.write(REQUEST + b"x-long: " + b"y" * 30_000 + b"\r\n\r\n")
            assert b"200 OK" in await reader.readuntil(b"ok")
        writer.close()


@pytest.mark.parametrize("before", [b"", REQUEST + b"\r\n"])
async def test_headers_without_end_are_refused(before: bytes) -> None:
    async with served() as connect:
        reader, writer = await connect()
        if before:
            writer.write(before)
            await reader.readuntil(b"ok")
        writer.write(REQUEST + b"x-long: ")
        answer = b""
        with contextlib.suppress(ConnectionError):  # what was sent after the refusal resets the connection
            for _ in range(2 * protocol.HEAD_BYTES // 4096):
                writer.write(b"y" * 4096)
                await asyncio.sleep(0.01)
            answer = await reader.read()
        assert writer.is_closing() or reader.at_eof()
        assert answer == b"" or (answer.startswith(b"HTTP/1.1 431 ") and b"64 kB" in answer)


@pytest.mark.parametrize(("sent", "answer"), [(b"", b""), (b"GET / HT", b"HTTP/1.1 408 "), (REQUEST, b"HTTP/1.1 408 ")])
async def test_a_connection_that_sends_no_whole_head_is_closed(
    sent: bytes, answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.1)
    async with served() as connect:
        reader, writer = await connect()
        writer.write(sent)
        found = await reader.read()
        assert found.startswith(answer) and bool(found) == bool(answer)


async def test_an_answer_in_progress_is_not_cut_by_the_next_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.05)
    slow = asyncio.Event()
    async with served(slow) as connect:
        reader, writer = await connect()
        writer.write(REQUEST + b"\r\n" + REQUEST)
        await asyncio.sleep(0.2)
        slow.set()
        assert b"200 OK" in await reader.readuntil(b"ok")
        assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
