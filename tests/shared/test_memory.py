"""Freed memory goes back to the system, again and again, and off the event loop."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace

import pytest

from openclaw_rl.shared import memory


async def test_trims_again_and_again_off_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, enough, threads = asyncio.get_running_loop(), asyncio.Event(), []

    def trim(pad: int) -> int:
        threads.append((threading.get_ident(), pad))
        if len(threads) == 3:
            loop.call_soon_threadsafe(enough.set)
        return 1

    monkeypatch.setattr(memory, "_LIBC", SimpleNamespace(malloc_trim=trim))
    work = asyncio.create_task(memory.return_freed_memory(interval=0.0))
    await asyncio.wait_for(enough.wait(), 10.0)
    work.cancel()
    assert {pad for _, pad in threads} == {0}
    assert threading.get_ident() not in {thread for thread, _ in threads}


@pytest.mark.parametrize("libc", [None, SimpleNamespace()], ids=["not Linux", "no glibc"])
async def test_ends_where_the_system_cannot(monkeypatch: pytest.MonkeyPatch, libc: object) -> None:
    monkeypatch.setattr(memory, "_LIBC", libc)
    await asyncio.wait_for(memory.return_freed_memory(interval=0.0), 10.0)
