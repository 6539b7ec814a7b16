from __future__ import annotations

import asyncio

import pytest

from openclaw_rl.shared.gather import gather


async def test_results_come_in_order() -> None:
    async def after(event: asyncio.Event | None, value: int, then: asyncio.Event | None = None) -> int:
        if event is not None:
            await event.wait()
        if then is not None:
            then.set()
        return value

    event = asyncio.Event()
    assert await gather(after(event, 1), after(None, 2, event)) == [1, 2]


async def test_one_failure_ends_the_others_and_is_raised_as_itself() -> None:
    ended = []

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def fail() -> None:
        await asyncio.sleep(0)
        raise KeyError("this one")

    with pytest.raises(KeyError, match="this one"):
        await gather(wait(), fail(), wait())
    assert ended == [True, True]
