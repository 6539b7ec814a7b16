"""Fireworks' training SDK (`fireworks.training.sdk` 1.2.28, a fork of Tinker's client), as this project uses it.

What is different from how it comes: nothing is sent twice that may have been taken the first time, its telemetry is
off, it does not wait for billing, and it speaks through httpx, whose errors tell whether a request left. Its base URL
is always given: it falls back to `TINKER_BASE_URL`.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_cloud.fireworks.errors import not_sent, status_of, told
from openclaw_rl.trainer_cloud.futures import finished, in_thread
from openclaw_rl.trainer_cloud.provider import CloudError

SERVERLESS = "/training/v1/serverless"
_CONFIG: dict[str, str | int | bool] = {
    "parallel_fwdbwd_chunks": True,
    "use_pyqwest_transport": False,
    "billing_exception_max_pause_duration_sec": 0,
}
"""What the SDK would else take from a constant of its own (`FIRETITAN_TINKER_CLIENT_CONFIG`)."""
FAILING_SECONDS = 60.0
_PAUSE_SECONDS = 30.0


def library() -> Any:
    """The SDK; importing it takes a moment."""
    os.environ["TINKER_TELEMETRY"] = "0"
    from fireworks.training import sdk

    return sdk


def root(settings: Settings) -> str:
    """Where Fireworks' own API is."""
    parts = urlsplit(settings.fireworks_base_url)
    return f"{parts.scheme}://{parts.netloc}"


def training_url(settings: Settings) -> str:
    """Where is trained without machines of one's own. An address that is not Fireworks', or one with a path, is taken
    as it is: its training API is Tinker's.
    """
    parts = urlsplit(settings.fireworks_base_url)
    host = parts.hostname or ""
    own = host == "fireworks.ai" or host.endswith(".fireworks.ai")
    return root(settings) + SERVERLESS if own and not parts.path.strip("/") else settings.fireworks_base_url.rstrip("/")


def connect(settings: Settings, url: str) -> Any:
    """A service with a session of its own at `url`. Blocks."""
    return library().FiretitanServiceClient(
        base_url=url,
        api_key=settings.fireworks_api_key,
        user_metadata={"program": "openclaw-rl"},
        max_retries=0,
        _client_config=dict(_CONFIG),
    )


async def blocking(settings: Settings, work: Callable[[], Any], seconds: float, doing: str) -> Any:
    """What blocking work with the SDK gives; the work itself is not interrupted. Raises `CloudError`."""
    return await finished(
        in_thread(work, "fireworks"),
        seconds,
        who="Fireworks",
        doing=doing,
        told=lambda error: told(error, model=settings.model, doing=doing),
    )


class Leash:
    """What a training client sends through, in place of the holder of its service.

    A request goes out a second time only where it is certain that the first was not taken: the server said so (429), or
    there was no connection. `cut` ends everything that the client still polls for; else the SDK would for ever. A
    server that does nothing but fail is polled for a minute.
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
            raise CloudError(f"Fireworks has failed for {FAILING_SECONDS:.0f} s: {told(error)}", "away") from error

    def _should_pause_on_billing(self, status_code: int, detail: str) -> bool:
        return False

    async def execute_with_retries(self, send: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any) -> Any:
        """In place of the holder's, which repeats everything for five minutes."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._seconds
        pause = 0.5
        while True:
            try:
                return await send(*args, **kwargs)
            except Exception as error:
                known = told(error)
                pause = min(max(known.retry_after or 0.0, 2 * pause), _PAUSE_SECONDS)
                if not (known.trouble == "limit" or not_sent(error)) or not known.undone:
                    raise
                if loop.time() + pause > deadline:
                    raise
                await asyncio.sleep(pause)
