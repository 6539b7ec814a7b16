"""The Tinker library, handled with care: imported late, its futures awaited, its own retries switched off where they
could do harm.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import os
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from shared.settings import Settings
from trainer_cloud.provider import CloudError
from trainer_cloud.tinker_errors import told

_CLOSE_SECONDS = 5.0
_PAUSE_SECONDS = 30.0


def once(holder: Any, seconds: float) -> None:
    """Make the requests of a service's holder go out once. A second is sent only where it is certain that the first
    was not taken: the server said so (429).
    """
    kwargs = holder._constructor_kwargs
    kwargs["max_retries"] = 0

    async def execute(send: Callable[..., Awaitable[Any]], *args: Any, **given: Any) -> Any:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while True:
            try:
                return await send(*args, **given)
            except Exception as error:
                known = told(error)
                pause = min(known.retry_after or 1.0, _PAUSE_SECONDS)
                if known.trouble != "limit" or loop.time() + pause > deadline:
                    raise
                await asyncio.sleep(pause)

    holder.execute_with_retries = execute


async def done(given: Any, seconds: float, doing: str, settings: Settings) -> Any:
    """What a future of the library holds. Raises `CloudError`; the library's work is cancelled with ours."""
    future = given.future() if hasattr(given, "future") else given
    waiting = asyncio.wrap_future(future) if isinstance(future, concurrent.futures.Future) else future
    try:
        async with asyncio.timeout(seconds):
            return await waiting
    except CloudError:
        raise
    except TimeoutError as error:
        raise CloudError(f"Tinker did not answer within {seconds:.0f} s ({doing})", "away") from error
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise CloudError(f"the Tinker library gave up {doing}", "away") from None
    except Exception as error:  # a library that raises all kinds of things
        raise told(error, model=settings.model, doing=doing) from error


async def finished(service: Any) -> None:
    """End a session, without raising: what is still there ends by itself once nobody is heard of."""

    def finish() -> None:
        if hasattr(service, "close"):
            service.close("success").result(_CLOSE_SECONDS)
        else:
            service.holder.close()

    with contextlib.suppress(Exception):  # whatever the library does at its end
        await asyncio.wait_for(asyncio.wrap_future(in_thread(finish)), _CLOSE_SECONDS)


def in_thread(work: Callable[[], Any]) -> concurrent.futures.Future[Any]:
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

    threading.Thread(target=run, daemon=True, name="tinker").start()
    return future


def library() -> Any:
    os.environ["TINKER_TELEMETRY"] = "0"
    import tinker

    # What it says is told by our errors; a lost connection it repeats every ten seconds.
    logging.getLogger("tinker").setLevel(logging.CRITICAL)

    return tinker


def types() -> Any:
    return library().types
