"""Run a service in one process: the real engine, proxy and learner over loopback HTTP, without four process starts."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import uvicorn

from openclaw_rl.learner.main import run as run_learner
from openclaw_rl.proxy.app import create_app as create_proxy
from openclaw_rl.proxy.service import ProxyService
from openclaw_rl.shared.backends import create_engine
from openclaw_rl.shared.engine.protocol import Engine
from openclaw_rl.shared.engine.server import create_app as create_engine_app
from openclaw_rl.shared.errors import OpenClawRLError
from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.rendering.prompter import Prompter
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_local.embedded.engine import EmbeddedEngine, EngineOptions

KEY = "lab"
UNBOUNDED = 1e3
"""Nats a token from the parent: by default no step is rejected for its size."""


@dataclass(frozen=True)
class Lab:
    """A running service: address, settings, and an engine client and prompter for measurements."""

    url: str
    key: str
    settings: Settings
    engine: Engine
    prompter: Prompter


class _Server(uvicorn.Server):
    """uvicorn without signal handlers, since several servers run in one process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield


@asynccontextmanager
async def lab(settings: Mapping[str, str | int | float | bool]) -> AsyncIterator[Lab]:
    """Run a service with a temporary data folder. Raises `OpenClawRLError` if the learner ends early."""
    with tempfile.TemporaryDirectory(prefix="openclaw-rl-lab-") as folder:
        own = {"data": Path(folder), "api_key": KEY, "audit_fraction": 0.0, "guard_max_kl": UNBOUNDED}
        chosen = Settings(**{**own, **settings})
        engine = EmbeddedEngine(
            EngineOptions(
                model=chosen.engine.model,
                checkpoints=str(chosen.checkpoints_path),
                max_versions=chosen.engine.max_versions,
            )
        )
        async with _serving(create_engine_app(engine, incremental=True)) as engine_url:
            chosen = chosen.replace(engine_url=engine_url)
            prompter = await asyncio.to_thread(Prompter.from_settings, chosen)
            journal = AsyncJournal(chosen.serve.journal_path)
            proxy = ProxyService(chosen, journal, create_engine(chosen), prompter)
            client = create_engine(chosen)
            stop = asyncio.Event()
            learner = asyncio.create_task(run_learner(chosen, stop), name="learner")
            try:
                async with _serving(create_proxy(proxy)) as url:
                    inner = cast("asyncio.Task[Any]", asyncio.current_task())
                    learner.add_done_callback(lambda _: stop.is_set() or inner.cancel())
                    try:
                        while await journal.live_version() is None:
                            await asyncio.sleep(0.02)
                        yield Lab(url, KEY, chosen, client, prompter)
                    except asyncio.CancelledError:
                        if learner.done() and not learner.cancelled() and learner.exception() is not None:
                            raise OpenClawRLError(f"the learner ended: {learner.exception()}") from learner.exception()
                        raise
                    finally:
                        stop.set()
                        with contextlib.suppress(Exception):
                            await learner
            finally:
                await client.close()


@asynccontextmanager
async def _serving(app: Any) -> AsyncIterator[str]:
    """Serve `app` on a free loopback port; yields its URL."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    server = _Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="on", timeout_graceful_shutdown=2))
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        while not server.started:
            if task.done():
                task.result()
                raise OpenClawRLError("a server of the lab did not start")
            await asyncio.sleep(0.01)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task
        listener.close()
