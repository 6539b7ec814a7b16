"""Waiting for a provider's library: for its futures, and for calls of it that block."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable
from typing import Any

from openclaw_rl.trainer_cloud.provider import CloudError


async def finished(given: Any, seconds: float, *, who: str, doing: str, told: Callable[[Exception], CloudError]) -> Any:
    """What a future holds, of a library's own kind (with `future()`) or of Python's. `told` puts other errors into
    words. Raises `CloudError`; cancelling cancels the library's future.
    """
    future = given.future() if hasattr(given, "future") else given
    waiting = asyncio.wrap_future(future) if isinstance(future, concurrent.futures.Future) else future
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await waiting
    except CloudError:
        raise
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise CloudError(f"the library of {who} gave up {doing}", "away") from None
    except Exception as error:  # libraries raise all kinds of things, time-outs of their own too
        if limit.expired():
            raise CloudError(f"{who} did not answer within {seconds:.0f} s ({doing})", "away") from error
        raise told(error) from error


def in_thread(work: Callable[[], Any], name: str) -> concurrent.futures.Future[Any]:
    """The result of blocking work, done in a thread that nothing waits for at the end."""
    future: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def run() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            result = work()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, daemon=True, name=name).start()
    return future
