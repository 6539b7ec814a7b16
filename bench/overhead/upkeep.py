"""Measure the proxy's start time, memory, and event-loop delays."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from pathlib import Path
from statistics import median

import msgspec

from bench.overhead import processes
from bench.overhead.measure import Bench, Case
from bench.overhead.processes import Running
from bench.program import log, milliseconds

_STARTS = 3
_FILLING = 2500  # sessions until the caches are full
_SESSIONS = 1000
_SESSION_TURNS = 10
_STEPS = 10
_CLIENTS = 16
_CHATS = 60
_NEW = 6
_WRITE_SECONDS = 10.0


async def upkeep(bench: Bench, engine: Running, scale: float) -> dict[str, float]:
    """Seconds until the proxy is ready and its MB then (medians of several starts); its growth in MB until its caches
    are full and after: the last one answers 25,000 requests of 2,500 sessions, and then 10,000 of 1,000 others.
    """
    seconds, memory = [], []
    for left in reversed(range(max(1, round(_STARTS * min(1.0, scale))))):
        async with processes.proxy(engine) as proxy:
            seconds.append(proxy.seconds)
            memory.append(proxy.memory())
            if not left:
                filled = await _growth(bench, proxy, round(_FILLING * scale))
                grown = await _growth(bench, proxy, round(_SESSIONS * scale))
    growth = {"memory_growth_mb": round(grown, 1), "memory_filled_mb": round(filled, 1)}
    return {**growth, "start_s": round(median(seconds), 2), "rss_mb": round(median(memory), 1)}


async def _growth(bench: Bench, proxy: Running, sessions: int) -> float:
    case = Case("openclaw", "burst", 32)
    step = max(1, round(sessions / _STEPS))
    before = proxy.memory()
    for count in range(1, _STEPS + 1):
        await bench.ask(proxy, case, sessions=step, turns=_SESSION_TURNS)
        log.print(f"after {step * count} sessions: {proxy.memory() - before:+.1f} MB")
    return proxy.memory() - before


async def stalls(bench: Bench, engine: Running, scale: float) -> dict[str, float]:
    """Percentiles of the delay of an event-loop callback in milliseconds, while clients chat and new ones arrive."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "stalls.json"
        async with processes.proxy(engine, stalls=target) as proxy:
            chats = max(1, round(_CHATS * scale))
            await bench.ask(proxy, Case("openclaw", "3ms", _CLIENTS), sessions=_CLIENTS)
            os.kill(proxy.pid, signal.SIGUSR1)
            await bench.ask(proxy, Case("openclaw", "3ms", _CLIENTS), sessions=chats)
            for prompt in ("openclaw-similar", "openclaw-cold"):
                await bench.ask(proxy, Case(prompt, "3ms", _CLIENTS), sessions=max(1, round(_NEW * scale)))
            os.kill(proxy.pid, signal.SIGUSR2)
            async with asyncio.timeout(_WRITE_SECONDS):
                while not target.exists():
                    await asyncio.sleep(0.01)
            late = msgspec.json.decode(target.read_bytes(), type=list[float])
    return {f"p{100 * share:g}": milliseconds(late, share) for share in (0.5, 0.99, 0.999, 1.0)}
