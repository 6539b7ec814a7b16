"""Fireworks' training SDK (`fireworks.training.sdk` 1.2.28, a fork of Tinker's client), as this project uses it.

What is different from how it comes: nothing is sent twice that may have been taken the first time, its telemetry is
off, it does not wait for billing, and it speaks through httpx, whose errors show whether a request left. Its base URL
is always given: it falls back to `TINKER_BASE_URL`.
"""

from __future__ import annotations

import functools
import os
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_cloud.failures import (
    ACCOUNTS,
    account_error,
    is_refusal,
    retry_after,
    status_of,
    was_not_sent,
    words_of,
)
from openclaw_rl.trainer_cloud.futures import finished, in_thread, send_once
from openclaw_rl.trainer_cloud.preflight import is_fireworks_own
from openclaw_rl.trainer_cloud.provider import CloudError

SERVERLESS = "/training/v1/serverless"
_CONFIG: dict[str, str | int | bool] = {
    "parallel_fwdbwd_chunks": True,
    "use_pyqwest_transport": False,
    "billing_exception_max_pause_duration_sec": 0,
}
"""What the SDK would else take from its own constant (`FIRETITAN_TINKER_CLIENT_CONFIG`)."""
FAILING_SECONDS = 60.0
_CAPACITY = re.compile(r"capacity|resource_exhausted|out of slots|quota", re.I)
READY_SECONDS = 3600.0
"""The time that machines may take to start."""
REST_SECONDS = 30.0


def library() -> Any:
    """The SDK; importing it takes a moment."""
    os.environ["TINKER_TELEMETRY"] = "0"
    from fireworks.training import sdk

    return sdk


def root(settings: Settings) -> str:
    """The address of Fireworks' own API."""
    parts = urlsplit(settings.cloud.fireworks_base_url)
    return f"{parts.scheme}://{parts.netloc}"


def access(settings: Settings) -> dict[str, str]:
    """Key and address, as the SDK's managers and clients take them."""
    return {"api_key": settings.cloud.fireworks_api_key, "base_url": root(settings)}


def training_url(settings: Settings) -> str:
    """The training endpoint of shared machines. An address that is not Fireworks', or one with a path, is taken as it
    is: its training API is Tinker's.
    """
    url = settings.cloud.fireworks_base_url
    own = is_fireworks_own(url) and not urlsplit(url).path.strip("/")
    return root(settings) + SERVERLESS if own else url.rstrip("/")


def connect(settings: Settings, url: str) -> Any:
    """A service with its own session at `url`. Blocks."""
    return library().FiretitanServiceClient(
        base_url=url,
        api_key=settings.cloud.fireworks_api_key,
        user_metadata={"program": "openclaw-rl"},
        max_retries=0,
        _client_config=dict(_CONFIG),
    )


async def blocking(settings: Settings, work: Callable[[], Any], seconds: float, doing: str) -> Any:
    """The result of blocking work with the SDK; the work itself is not interrupted. Raises `CloudError`."""
    translate = functools.partial(to_cloud_error, model=settings.engine.model, doing=doing)
    return await finished(in_thread(work, "fireworks"), seconds, who="Fireworks", doing=doing, translate=translate)


class Leash:
    """A holder that a training client sends through, in place of that of its service.

    A request goes out a second time only where the first was certainly not taken: the server said so (429), or there
    was no connection. `cut` ends everything that the client still polls for; else the SDK would for ever. A server that
    does nothing but fail is polled for a minute.
    """

    def __init__(self, holder: Any, seconds: float) -> None:
        self.holder = holder
        self._seconds = seconds
        self._failing_since: float | None = None
        self.cut = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.holder, name)

    @contextmanager
    def aclient(self, pool: Any) -> Iterator[Any]:
        """As the holder's, until it is cut. Raises `CloudError` once the server has failed for too long."""
        if self.cut:
            raise RuntimeError("this training client was given up")
        try:
            with self.holder.aclient(pool) as client:
                yield client
        except Exception as error:
            self._note(error)
            raise
        self._failing_since = None

    def _note(self, error: Exception) -> None:
        status, now = status_of(error), time.monotonic()
        if status is None:  # there was no connection, which says nothing of the request
            return
        if status < 500:
            self._failing_since = None
            return
        self._failing_since = self._failing_since or now
        if now - self._failing_since > FAILING_SECONDS:
            message = f"Fireworks has failed for {FAILING_SECONDS:.0f} s: {to_cloud_error(error)}"
            raise CloudError(message, "away") from error

    def _should_pause_on_billing(self, status_code: int, detail: str) -> bool:
        return False

    async def execute_with_retries(self, send: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any) -> Any:
        """In place of the holder's, which repeats everything for five minutes."""
        return await send_once(functools.partial(send, *args, **kwargs), self._seconds, not_taken=_not_taken)


def _not_taken(error: Exception) -> CloudError | None:
    known = to_cloud_error(error)
    return known if known.undone and (known.trouble == "limit" or was_not_sent(error)) else None


def to_cloud_error(error: Exception, *, model: str = "", doing: str = "a request") -> CloudError:
    """The error of a library, or of the network below it. `undone` is set where the request was certainly not taken.

    Statuses by the error reference of Fireworks' cookbook: 412 with a word of billing is a suspended account, 409 with
    a word of capacity a full pool, 425 a deployment that is loading weights.
    """
    if isinstance(error, CloudError):
        return error
    words, status, after = words_of(error), status_of(error), retry_after(error)
    # A status that came with the request itself, and not with the result of one that had been taken.
    direct = getattr(error, "response", None) is not None
    if known := account_error(ACCOUNTS["fireworks"], status, words, retry_after=after, undone=direct):
        return known
    if status == 409 and _CAPACITY.search(words):
        return CloudError(f"Fireworks has no room for {doing} now: {words}", "limit", retry_after=after, undone=direct)
    about_model = model in words or "base_model" in words or "model not found" in words.lower()
    if status in (400, 404) and model and about_model:
        return CloudError(f"Fireworks cannot use model = {model} for this: {words}", "model", undone=direct)
    if was_not_sent(error):
        return CloudError(f"Fireworks cannot be reached ({doing}): {words}", "away", undone=True)
    if is_refusal(error):
        return CloudError(f"Fireworks refused {doing}: {words}", "refused", undone=direct)
    if isinstance(error, ValueError | TypeError | NotImplementedError) and error.__cause__ is None and status is None:
        # The library's own, before anything is sent.
        return CloudError(f"Fireworks' library refused {doing}: {words}", "refused", undone=True)
    if status is not None:
        return CloudError(f"Fireworks failed with status {status} ({doing}): {words}", "away", retry_after=after)
    return CloudError(f"Fireworks cannot be reached or failed ({doing}): {words}", "away")
