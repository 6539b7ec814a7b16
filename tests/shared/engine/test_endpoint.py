"""Routes of an engine that are asked over connections which its server may close at any time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from openclaw_rl.shared.engine.endpoint import EngineEndpoint
from openclaw_rl.shared.errors import EngineError

ANSWER = b'HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{"a": 12}'


@asynccontextmanager
async def server(answers: list[int]) -> AsyncIterator[EngineEndpoint]:
    """A connection's server answers as often as the next of `answers` says; then it reads one more and hangs up."""
    left = list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(left.pop(0)):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(ANSWER)
        with suppress(asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    engine = EngineEndpoint(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", 1.0)
    try:
        yield engine
    finally:
        engine.close()
        listening.close()


async def test_a_request_on_a_kept_connection_that_is_just_being_closed_is_sent_again() -> None:
    async with server([1, 5]) as engine:
        assert [await engine.get("/model_info") for _ in range(3)] == [{"a": 12}] * 3


async def test_an_engine_that_hangs_up_whenever_it_is_asked_cannot_be_reached() -> None:
    async with server([0, 0]) as engine:
        with pytest.raises(EngineError, match="cannot be reached: the server closed the connection"):
            await engine.get("/model_info")
