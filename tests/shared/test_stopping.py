from __future__ import annotations

import asyncio
import os
import signal

import pytest

from openclaw_rl.shared.stopping import run_until_stopped


def test_sigterm_ends_every_task_where_it_waits_and_never_in_the_middle() -> None:
    cleaned: list[str] = []

    async def worker() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            cleaned.append("passed the signal")
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            cleaned.append("cleaned up")

    async def work() -> None:
        await asyncio.gather(worker())

    with pytest.raises(SystemExit) as ended:
        run_until_stopped(work())
    assert ended.value.code == 128 + signal.SIGTERM
    assert cleaned == ["passed the signal", "cleaned up"]


def test_work_that_is_not_stopped_gives_its_result_and_its_own_end() -> None:
    async def work(end: BaseException | None) -> int:
        if end is not None:
            raise end
        return 7

    assert run_until_stopped(work(None)) == 7
    with pytest.raises(asyncio.CancelledError):
        run_until_stopped(work(asyncio.CancelledError()))
