"""The Tinker library, handled with care: imported late, its futures awaited, its own retries switched off where they
could do harm.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Awaitable, Callable
from typing import Any

from openclaw_rl.trainer_cloud.futures import closed, finished, in_thread, send_once
from openclaw_rl.trainer_cloud.provider import CloudError
from openclaw_rl.trainer_cloud.tinker.errors import to_cloud_error

_CLOSE_SECONDS = 5.0


def stop_retries(holder: Any, seconds: float) -> None:
    """Make the requests of a service's holder go out once. A second is sent only where the first was certainly not
    taken: the server said so (429). Raises `CloudError` for a library that cannot be held to it.
    """
    if not isinstance(getattr(holder, "_constructor_kwargs", None), dict) or not hasattr(
        holder, "execute_with_retries"
    ):
        raise CloudError(
            "this version of the Tinker library sends lost requests again, and a gradient must not count twice: "
            "install a version that is known (docs/backends.md)",
            "refused",
            undone=True,
        )
    holder._constructor_kwargs["max_retries"] = 0

    def not_taken(error: Exception) -> CloudError | None:
        known = to_cloud_error(error)
        return known if known.trouble == "limit" else None

    async def execute(send: Callable[..., Awaitable[Any]], *args: Any, **given: Any) -> Any:
        return await send_once(functools.partial(send, *args, **given), seconds, not_taken=not_taken)

    holder.execute_with_retries = execute


async def done(given: Any, seconds: float, doing: str, **asked: Any) -> Any:
    """The result of a future of the library. `asked` is what was asked for, as `to_cloud_error` takes it. Raises
    `CloudError`; the library's work is cancelled with ours.
    """
    translate = functools.partial(to_cloud_error, doing=doing, **asked)
    return await finished(given, seconds, who="Tinker", doing=doing, translate=translate)


async def made(make: Callable[[], Any], seconds: float, **asked: Any) -> Any:
    """The result of a call of the library that blocks, or gives a future of it, by version."""

    def result() -> Any:
        given = make()
        return given.result() if hasattr(given, "result") else given

    return await done(in_thread(result, "tinker"), seconds, "starting", **asked)


async def end(service: Any) -> None:
    """End a session, without raising: what is still there ends by itself when the service hears nothing more."""

    def finish() -> None:
        if hasattr(service, "close"):
            service.close("success").result(_CLOSE_SECONDS)
        else:
            service.holder.close()

    await closed(finish, "tinker", _CLOSE_SECONDS)


def library() -> Any:
    os.environ["TINKER_TELEMETRY"] = "0"
    import tinker

    # Our errors repeat what it logs; a lost connection it reports every ten seconds.
    logging.getLogger("tinker").setLevel(logging.CRITICAL)

    return tinker


def types() -> Any:
    return library().types
