"""The lateness of the event loop is measured, and is in /metrics."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from openclaw_rl.learner.progress import Progress
from openclaw_rl.shared.loop_lag import watch_lag
from tests.processes import Proxy

BLOCKED = 0.2


async def test_a_loop_that_is_blocked_is_late() -> None:
    lags: list[float] = []
    watch = asyncio.create_task(watch_lag(lags.append, interval=0.05))
    while not lags:
        await asyncio.sleep(0)
    seen = len(lags)
    time.sleep(BLOCKED)
    while len(lags) == seen:
        await asyncio.sleep(0)
    watch.cancel()
    assert lags[seen] >= BLOCKED - 0.05
    assert all(lag >= 0 for lag in lags)


def test_the_lag_is_in_the_metrics(start_proxy: Callable[..., Proxy]) -> None:
    proxy = start_proxy()
    learner = Progress()
    for seconds in (0.25, 0.5, 0.0):
        learner.late(seconds)
    proxy.journal().heartbeat("learner", 1, learner.status())
    with proxy.client() as client:
        shown = client.get("/metrics").text
        while "openclaw_rl_loop_lag_seconds_count 0.0" in shown:
            shown = client.get("/metrics").text
        assert "openclaw_rl_loop_lag_seconds_bucket" in shown
        assert "openclaw_rl_learner_loop_lag_seconds 0.5" in shown
