"""The Tinker library, handled with care: imported late, its futures awaited, its own retries switched off where they
could do harm, its waits for credit switched off, and its errors as a `CloudError`.
"""

from __future__ import annotations

import functools
import logging
import os
import re
from collections.abc import Awaitable, Callable
from typing import Any

from openclaw_rl.trainer_cloud.failures import ACCOUNTS, account_error, is_refusal, retry_after, status_of, words_of
from openclaw_rl.trainer_cloud.futures import closed, finished, in_thread, send_once
from openclaw_rl.trainer_cloud.provider import CloudError

_CLOSE_SECONDS = 5.0
_NOT_THERE = re.compile(r"\bnot found\b|\bis gone\b", re.I)
_SESSION = re.compile(r"\bsession not found\b", re.I)


def report_billing(holder: Any) -> None:
    """Make an account without credit (status 402) an error at once: the library would wait an hour for credit."""
    holder._should_pause_on_billing = lambda status_code, detail: False


def stop_retries(holder: Any, seconds: float) -> None:
    """Make the requests of a service's holder go out once: for servers that do not recognise a request that comes
    again. A second is sent only where the first was certainly not taken: the server said so (429). Raises `CloudError`
    for a library that cannot be held to it.
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


def to_cloud_error(
    error: Exception, *, model: str = "", path: str = "", training: bool = False, doing: str = "a request"
) -> CloudError:
    """The error of the library, or of the network below it. What is missing is named by what was asked for: the base
    model by its name, weights or a state by their path, or the model of a `training` client. `undone` is set where the
    request was certainly not taken.
    """
    if isinstance(error, CloudError):
        return error
    words, status = words_of(error), status_of(error)
    if known := account_error(ACCOUNTS["tinker"], status, words, retry_after=retry_after(error)):
        return known
    absent, refusal = status in (404, 410), is_refusal(error)
    if absent and _SESSION.search(words):
        return CloudError(f"Tinker has ended the session ({doing}): {words}", "away", undone=not training)
    if path and (absent or (refusal and _NOT_THERE.search(words))):
        return CloudError(f"Tinker has nothing at {path} any more ({doing}): {words}", "gone", undone=True)
    if training and absent:
        return CloudError(f"Tinker does not have the model in training any more ({doing}): {words}", "away")
    if model and status == 404:
        return CloudError(f"Tinker does not have the model {model} ({words}); set model", "model", undone=True)
    if refusal:
        return CloudError(f"Tinker refused {doing}: {words}", "refused", undone=status is not None)
    if status is not None:
        return CloudError(f"Tinker failed with status {status} ({doing}): {words}", "away")
    if "poisoned" in words:
        return CloudError(f"an earlier request failed, and the Tinker client with it ({doing})", "away")
    return CloudError(f"Tinker cannot be reached or failed ({doing}): {words}", "away")
