"""Calls of a provider's library: its futures, calls that block, and requests that must not be made twice."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar

import stamina

from openclaw_rl.trainer_cloud.provider import CloudError

_T = TypeVar("_T")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0


async def finished(
    given: Any, seconds: float, *, who: str, doing: str, translate: Callable[[Exception], CloudError]
) -> Any:
    """The result of a future, of a library's kind (with `future()`) or of Python's. `translate` puts other errors into
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
        raise translate(error) from error


def in_thread(work: Callable[[], _T], name: str) -> concurrent.futures.Future[_T]:
    """The result of blocking work, done in a thread that nothing waits for at the end."""
    future: concurrent.futures.Future[_T] = concurrent.futures.Future()

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


async def closed(work: Callable[[], Any], name: str, seconds: float) -> None:
    """Do blocking work that ends something, for a few seconds and without raising: whatever a library does then."""
    with contextlib.suppress(Exception):
        await asyncio.wait_for(asyncio.wrap_future(in_thread(work, name)), seconds)


def submitted(call: Callable[..., Any], *args: Any) -> Any:
    """The future that a library's call gives, or one of the error that it raises at once."""
    try:
        return call(*args)
    except Exception as error:
        failed: concurrent.futures.Future[Any] = concurrent.futures.Future()
        failed.set_exception(error)
        return failed


async def send_once(
    send: Callable[[], Awaitable[Any]], seconds: float, *, not_taken: Callable[[Exception], CloudError | None]
) -> Any:
    """The answer to a request that must not count twice. It goes out again, for up to `seconds`, only after an error
    that `not_taken` knows to mean that it was not taken; any other is raised.
    """
    deadline = time.monotonic() + seconds

    def pause(error: Exception) -> bool | timedelta:
        known = not_taken(error)
        wait = 0.0 if known is None else min(known.retry_after or 0.0, _LONGEST_PAUSE)
        if known is None or time.monotonic() + max(wait, _FIRST_PAUSE) > deadline:
            return False
        return timedelta(seconds=wait) if wait else True

    async for attempt in stamina.retry_context(
        on=pause, attempts=None, timeout=seconds, wait_initial=_FIRST_PAUSE, wait_max=_LONGEST_PAUSE
    ):
        with attempt:
            answer = await send()
    return answer
