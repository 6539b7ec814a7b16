"""The adapter process, as the proxy controls it: started by the first request that needs it, and again when it dies.

Its socket is in a private folder that only this user can enter, and it ends with the proxy, however that ends.

Only the proxy says which dialect a turn came in: it gives the process a mark with a secret, and gets it back on the
chat route. A mark that a client makes up is ignored.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import hmac
import importlib
import importlib.util
import logging
import os
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from openclaw_rl.proxy.dialects.headers import MARK_HEADER, READY
from openclaw_rl.proxy.http.limits import ConcurrencyLimit
from openclaw_rl.shared.child_process import end_child, start_child
from openclaw_rl.shared.errors import Overloaded, RequestError
from openclaw_rl.shared.extras import install_command
from openclaw_rl.shared.process import PARENT_VARIABLE, alive

if TYPE_CHECKING:
    import httpx

log = logging.getLogger(__name__)

CHAT = "chat"
PLACES = 64
START_SECONDS = 180.0
STOP_SECONDS = 5.0
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
NEEDED = ("litellm", "mcp")
_FOLDERS = "openclaw-rl-adapter-"
"""The beginning of the names of the folders; the proxy's process id follows."""


def _remove_left_folders() -> None:
    """Remove the folders of proxies that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDERS}*"):
        pid = folder.name.removeprefix(_FOLDERS).partition("-")[0]
        with contextlib.suppress(OSError):
            if pid.isdigit() and not alive(int(pid)) and folder.stat().st_uid == os.getuid():
                shutil.rmtree(folder, ignore_errors=True)


def missing_modules() -> list[str]:
    """The modules that the process needs and that are not installed."""
    return [name for name in NEEDED if importlib.util.find_spec(name) is None]


class AdapterProcess:
    """One child process, the connections to it, and their limit. Its methods belong to one event loop."""

    def __init__(self) -> None:
        self.limit = ConcurrencyLimit(PLACES)
        self.restarts = 0
        self._secret = secrets.token_hex(16)
        self._folder: Path | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._transport: httpx.AsyncHTTPTransport | None = None  # while the process takes requests
        self._watching: asyncio.Task[None] | None = None
        self._starting: asyncio.Task[httpx.AsyncHTTPTransport] | None = None
        self._pause = 0.0
        self._not_before = 0.0
        self._failure = ""
        self._stopped = False

    def mark(self, dialect: str) -> str:
        """The mark of a request in a dialect."""
        return f"{self._secret} {dialect}"

    def dialect_of(self, headers: Mapping[str, str]) -> str:
        """The dialect of a request on the chat route."""
        secret, _, name = headers.get(MARK_HEADER, "").partition(" ")
        return name if name and hmac.compare_digest(secret.encode(), self._secret.encode()) else CHAT

    @contextlib.asynccontextmanager
    async def post(
        self, path: str, data: bytes, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[httpx.Response]:
        """The answer to a request; its body can be read until the context ends. Starts the process if need be.

        Raises `RequestError` (see `ready`), or `ConnectionError` where the process breaks off, also while the body is
        read.
        """
        transport = await self.ready()
        import httpx  # loaded by now, see `_start`

        sent = [(name.encode("latin-1"), value.encode()) for name, value in (headers or {}).items()]
        request = httpx.Request("POST", f"http://adapter{path}", headers=sent, content=data)
        try:
            async with contextlib.aclosing(await transport.handle_async_request(request)) as response:
                yield response
        except httpx.HTTPError as error:
            raise ConnectionError(repr(error)) from error

    async def ready(self) -> httpx.AsyncHTTPTransport:
        """Connections to the process, once it takes requests; starts it if need be. Raises `RequestError`: 501 where
        LiteLLM is not installed, 503 while the process cannot be started.
        """
        if self._transport is not None:
            return self._transport
        if self._starting is None or self._starting.done():
            if time.monotonic() < self._not_before:
                raise self._unavailable()
            self._starting = asyncio.create_task(
                self._start(),
                name="start adapter",
                context=contextvars.Context(),  # what it logs is about no turn of the request that began it
            )
        return await asyncio.shield(self._starting)  # others may wait for it, too

    async def stop(self) -> None:
        """End the process, which breaks off its answers, and remove its socket."""
        self._stopped = True
        for task in (self._starting, self._watching):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, RequestError):
                    await task
        await self._disconnect()
        if self._process is not None:
            await end_child(self._process, STOP_SECONDS)
        if self._folder is not None:
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def _start(self) -> httpx.AsyncHTTPTransport:
        missing = missing_modules()
        if missing:
            raise RequestError(
                f"This dialect needs {' and '.join(missing)}, which is not installed: "
                f"{install_command('dialects')}. /v1/chat/completions works without.",
                status=501,
                code="not_installed",
            )
        if self._folder is None:
            await asyncio.to_thread(_remove_left_folders)
            self._folder = Path(tempfile.mkdtemp(prefix=f"{_FOLDERS}{os.getpid()}-"))
        path = self._folder / f"{self.restarts}.sock"
        path.unlink(missing_ok=True)
        began = time.monotonic()
        self._process = process = await start_child(
            sys.executable,
            "-m",
            "openclaw_rl.proxy.dialects.adapter",
            str(path),
            logging.getLevelName(log.getEffectiveLevel()),
            stdout=asyncio.subprocess.PIPE,
            environment={**os.environ, PARENT_VARIABLE: str(os.getpid())},
        )
        assert process.stdout is not None
        # Loading httpx takes a while; a proxy whose clients all speak chat does not need it.
        await asyncio.to_thread(importlib.import_module, "httpx")
        import httpx

        try:
            async with asyncio.timeout(START_SECONDS):
                line = await process.stdout.readline()
        except TimeoutError:
            line = b""
        if line != READY:
            await end_child(process, 0.0)
            self._process = None
            self._failed("it could not be started; the log says why")
            raise self._unavailable()
        log.info("the adapter process (pid %d) was ready after %.1f s", process.pid, time.monotonic() - began)
        # Connecting to a local socket costs nothing, and a connection that is kept may close as the next request comes.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        self._transport = httpx.AsyncHTTPTransport(uds=str(path), limits=limits)
        self._watching = asyncio.create_task(self._watch(process, began), name="adapter")
        return self._transport

    async def _watch(self, process: asyncio.subprocess.Process, began: float) -> None:
        """Once the process has ended by itself, start it again, so that the next client need not wait."""
        code = await process.wait()
        self._process = None
        await self._disconnect()
        if self._stopped:
            return
        log.warning("the adapter process ended with code %d; it is started again", code)
        self.restarts += 1
        if time.monotonic() - began > LONGEST_PAUSE:
            self._pause = 0.0
        self._failed(f"it ended with code {code}")
        await asyncio.sleep(self._pause)
        if not self._stopped and self._transport is None:
            with contextlib.suppress(RequestError):
                await self.ready()

    async def _disconnect(self) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            await transport.aclose()

    def _failed(self, reason: str) -> None:
        self._failure = reason
        self._not_before = time.monotonic() + self._pause
        self._pause = min(max(FIRST_PAUSE, self._pause * 2), LONGEST_PAUSE)

    def _unavailable(self) -> Overloaded:
        wait = max(1.0, self._not_before - time.monotonic())
        return Overloaded(
            f"The adapter process, which speaks this dialect, is not up: {self._failure}. "
            "/v1/chat/completions works without it.",
            code="adapter_unavailable",
            retry_after=wait,
        )
