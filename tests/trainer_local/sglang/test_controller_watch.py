"""A faked SGLang that hangs: its controller ends it once it has been silent for too long, unless it never answered."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from openclaw_rl.trainer_local.sglang import controller
from openclaw_rl.trainer_local.sglang.controller import Program


class FakedServer:
    """Answers for its scheduler while `answers`, and always for itself; `questions` counts those for the scheduler."""

    def __init__(self) -> None:
        self.answers = True
        self.questions = 0
        self.url = ""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[FakedServer]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()

    async def asked(self, count: int) -> None:
        """Wait for so many more questions."""
        wanted = self.questions + count
        while self.questions < wanted:
            await asyncio.sleep(0.005)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        for_scheduler = b" /server_info " in head
        self.questions += for_scheduler
        if self.answers or not for_scheduler:
            body = b'{"weight_version": "1"}'
            writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
        else:
            await reader.read()  # until the client gives up
        writer.close()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "WATCH_SECONDS", 0.01)
    monkeypatch.setattr(controller, "_ANSWER_SECONDS", 0.02)
    monkeypatch.setattr(controller, "SICK_SECONDS", 0.1)


def run(server: FakedServer) -> asyncio.Task[int]:
    program = Program("server", lambda: ["sleep", "600"], dict(os.environ), server.url, server=True)
    return asyncio.create_task(program.run())


async def end(program: asyncio.Task[int]) -> None:
    program.cancel()
    await asyncio.gather(program, return_exceptions=True)


async def test_a_faked_server_that_answered_and_hangs_is_ended(quick: None) -> None:
    async with FakedServer().running() as server, asyncio.timeout(30):
        program = run(server)
        await server.asked(2)
        server.answers = False
        assert await program == -signal.SIGKILL


async def test_a_faked_server_that_has_not_answered_yet_may_compile_for_as_long_as_it_likes(quick: None) -> None:
    async with FakedServer().running() as server, asyncio.timeout(30):
        server.answers = False
        program = run(server)
        await server.asked(20)
        assert not program.done()
        await end(program)


async def test_a_faked_server_that_is_silent_for_less_is_left_alone(
    quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "SICK_SECONDS", 600.0)
    async with FakedServer().running() as server, asyncio.timeout(30):
        program = run(server)
        await server.asked(2)
        server.answers = False
        await server.asked(10)
        server.answers = True
        await server.asked(2)
        assert not program.done()
        await end(program)
