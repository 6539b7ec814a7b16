"""The Tinker library, handled with care: imported late, its futures awaited, its own retries switched off where they
could do harm.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import logging
import os
from collections.abc import Awaitable, Callable
from typing import Any

from openclaw_rl.shared.extras import install_command
from openclaw_rl.trainer_cloud import futures
from openclaw_rl.trainer_cloud.provider import CloudError
from openclaw_rl.trainer_cloud.tinker.errors import told

_CLOSE_SECONDS = 5.0
_PAUSE_SECONDS = 30.0


def once(holder: Any, seconds: float) -> None:
    """Make the requests of a service's holder go out once. A second is sent only where it is certain that the first
    was not taken: the server said so (429). Raises `CloudError` for a library that cannot be held to it.
    """
    if not isinstance(getattr(holder, "_constructor_kwargs", None), dict) or not hasattr(
        holder, "execute_with_retries"
    ):
        raise CloudError(
            "this version of the Tinker library sends lost requests again, and a gradient must not count twice: "
            f"install one that is known ({install_command('cloud')})",
            "refused",
            undone=True,
        )
    holder._constructor_kwargs["max_retries"] = 0

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


async def done(given: Any, seconds: float, doing: str, **asked: Any) -> Any:
    """What a future of the library holds. `asked` says what for, as `tinker_errors.told` takes it. Raises `CloudError`;
    the library's work is cancelled with ours.
    """
    words = functools.partial(told, doing=doing, **asked)
    return await futures.finished(given, seconds, who="Tinker", doing=doing, told=words)


async def end(service: Any) -> None:
    """End a session, without raising: what is still there ends by itself once nobody is heard of."""

    def finish() -> None:
        if hasattr(service, "close"):
            service.close("success").result(_CLOSE_SECONDS)
        else:
            service.holder.close()

    with contextlib.suppress(Exception):  # whatever the library does at its end
        await asyncio.wait_for(asyncio.wrap_future(in_thread(finish)), _CLOSE_SECONDS)


def in_thread(work: Callable[[], Any]) -> concurrent.futures.Future[Any]:
    """The result of blocking work."""
    return futures.in_thread(work, "tinker")


def library() -> Any:
    os.environ["TINKER_TELEMETRY"] = "0"
    import tinker

    # What it says is told by our errors; a lost connection it repeats every ten seconds.
    logging.getLogger("tinker").setLevel(logging.CRITICAL)

    return tinker


def types() -> Any:
    return library().types
