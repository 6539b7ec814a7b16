"""Lateness of the event loop: whatever computes on it keeps every request waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

INTERVAL_SECONDS = 0.25


async def watch_lag(observe: Callable[[float], None], interval: float = INTERVAL_SECONDS) -> None:
    """Report until cancelled how much later than due the loop comes back, in seconds."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + interval
        await asyncio.sleep(interval)
        observe(max(0.0, loop.time() - due))
