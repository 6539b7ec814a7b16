"""Fireworks' training SDK (`fireworks.training.sdk` 1.2.28, a fork of Tinker's client), as this project uses it.

What is different from how it comes: nothing is sent twice that may have been taken the first time, its telemetry is
off, it does not wait for billing, and it speaks through httpx, whose errors show whether a request left. Its base URL
is always given: it falls back to `TINKER_BASE_URL`.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_cloud.failures import status_of, was_not_sent
from openclaw_rl.trainer_cloud.fireworks.errors import to_cloud_error
from openclaw_rl.trainer_cloud.futures import finished, in_thread, send_once
from openclaw_rl.trainer_cloud.provider import CloudError

SERVERLESS = "/training/v1/serverless"
_CONFIG: dict[str, str | int | bool] = {
    "parallel_fwdbwd_chunks": True,
    "use_pyqwest_transport": False,
    "billing_exception_max_pause_duration_sec": 0,
}
"""What the SDK would else take from its own constant (`FIRETITAN_TINKER_CLIENT_CONFIG`)."""
FAILING_SECONDS = 60.0
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
    parts = urlsplit(settings.cloud.fireworks_base_url)
    host = parts.hostname or ""
    own = host == "fireworks.ai" or host.endswith(".fireworks.ai")
    return (
        root(settings) + SERVERLESS
        if own and not parts.path.strip("/")
        else settings.cloud.fireworks_base_url.rstrip("/")
    )


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
