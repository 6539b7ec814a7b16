"""An answer that ends with its client, or with the service."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from openclaw_rl.proxy.http.body import answer_unless_gone


async def gone() -> Any:
    return {"type": "http.disconnect"}


async def test_an_answer_ends_when_its_client_leaves() -> None:
    ended = asyncio.Event()

    async def answer() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    await answer_unless_gone(gone, answer())
    assert ended.is_set()


async def test_a_failure_of_the_answer_is_raised() -> None:
    async def answer() -> None:
        raise ConnectionError("broken")

    with pytest.raises(ConnectionError, match="broken"):
        await answer_unless_gone(asyncio.Event().wait, answer())


async def test_a_cancellation_while_the_answer_of_a_client_that_left_ends_is_not_swallowed() -> None:
    ending, release = asyncio.Event(), asyncio.Event()

    async def answer() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ending.set()
            await release.wait()

    work = asyncio.create_task(answer_unless_gone(gone, answer()))
    await ending.wait()
    work.cancel()
    await asyncio.sleep(0)
    release.set()
    await asyncio.wait((work,))
    assert work.cancelled()
