"""Run our proxy and measure the delays of its event loop with one extra callback per millisecond.

    BENCH_STALLS=FILE python -m bench.overhead.watched_proxy

The callback schedules itself a millisecond later and records its delay. SIGUSR1 drops the delays so far; SIGUSR2 writes
them to FILE, a JSON array of seconds.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from time import perf_counter

import msgspec

from openclaw_rl.proxy import main
from openclaw_rl.proxy.service import ProxyService

STEP_SECONDS = 0.001


class WatchedService(ProxyService):
    """A service that measures the delays of its event loop."""

    async def start(self) -> None:
        """Start the service and the measurement."""
        await super().start()
        loop = asyncio.get_running_loop()
        late: list[float] = []
        due = perf_counter() + STEP_SECONDS

        def tick() -> None:
            nonlocal due
            current = perf_counter()
            late.append(max(0.0, current - due))
            due = current + STEP_SECONDS
            loop.call_later(STEP_SECONDS, tick)

        def write() -> None:
            target = Path(os.environ["BENCH_STALLS"])
            part = target.with_suffix(".part")
            part.write_bytes(msgspec.json.encode(late))
            part.rename(target)

        loop.call_later(STEP_SECONDS, tick)
        loop.add_signal_handler(signal.SIGUSR1, late.clear)
        loop.add_signal_handler(signal.SIGUSR2, write)


if __name__ == "__main__":
    main.ProxyService = WatchedService  # type: ignore[attr-defined]
    sys.exit(main.main())
