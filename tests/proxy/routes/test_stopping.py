"""Answers in progress when the service ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.proxy.app import create_app
from openclaw_rl.shared.engine.protocol import Tokens
from tests.proxy.scripted_engine import ScriptedEngine, scripted_service


class StuckEngine(ScriptedEngine):
    """Says its first token and no more."""

    async def generate(self, *_: Any, **__: Any) -> AsyncIterator[Tokens]:
        yield Tokens(self.tokens()[:1], [-1.0], 0)
        await asyncio.Event().wait()


@pytest.mark.parametrize("stream", [True, False])
async def test_a_scripted_answer_that_the_end_of_the_service_breaks_off_ends_with_an_error(
    policy_folder: Path, tmp_path: Path, stream: bool
) -> None:
    body = {"model": "policy", "messages": [{"role": "user", "content": "hello"}], "stream": stream}
    sent: asyncio.Queue[Any] = asyncio.Queue()
    received = [{"type": "http.request", "body": json.dumps(body).encode()}]

    async def receive() -> Any:
        if received:
            return received.pop()
        return await asyncio.Event().wait()

    async with scripted_service(policy_folder, tmp_path, "yes", engine=StuckEngine) as (_, service, _):
        scope = {"type": "http", "path": "/v1/chat/completions", "method": "POST"}
        scope |= {"headers": [(b"authorization", b"Bearer key")], "server": ("127.0.0.1", 1)}
        work = asyncio.create_task(create_app(service)(scope, receive, sent.put))
        if stream:
            assert (await sent.get())["status"] == 200
            assert b"delta" in (await sent.get())["body"]
        else:
            while not service.answering:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
        work.cancel()  # as uvicorn does at the end of its grace
        await asyncio.wait((work,))
        assert work.cancelled()
        said = [sent.get_nowait() for _ in range(sent.qsize())]
    if not stream:
        assert said[0]["status"] == 503
    assert b"The service is stopping" in said[-1]["body"] and not said[-1].get("more_body")
