"""The proxy process: `python -m openclaw_rl.proxy.main`, settings from the environment (`OPENCLAW_RL_*`)."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys

import uvicorn

from openclaw_rl.proxy.app import create_app
from openclaw_rl.proxy.chat.fallback_models import check_installed
from openclaw_rl.proxy.http.auth import check_binding
from openclaw_rl.proxy.http.protocol import BoundedProtocol
from openclaw_rl.proxy.service import ProxyService
from openclaw_rl.shared.backends import create_engine, resolve_backend
from openclaw_rl.shared.errors import OpenClawRLError
from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.logs import configure_logs
from openclaw_rl.shared.process import BACKLOG, die_with_parent, inherited_listeners
from openclaw_rl.shared.rendering.prompter import Prompter
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.shared.settings.sources import load

GRACE_SECONDS = 6
YOUNG_OBJECTS = 10_000
"""New containers until the collector runs: each request in flight has hundreds, which are freed without it."""
SWITCH_SECONDS = 0.0005
"""Seconds that the journal's thread waits for the interpreter lock while the event loop is busy. It needs it dozens of
times a turn, and answers wait for that: with Python's default of 5 ms a busy proxy has less throughput."""


def _is_upgrade(record: logging.LogRecord) -> bool:
    """True for uvicorn's warnings about a client that asks for a WebSocket: it gets an answer that says what to do."""
    message = record.getMessage()
    return message.startswith(("Unsupported upgrade request", "No supported WebSocket library"))


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT, with a few seconds for answers in progress. Raises `OpenClawRLError`."""
    check_binding(settings.serve.host, settings.serve.api_key)
    check_installed(settings)
    engine = create_engine(settings)
    prompter = Prompter.from_settings(settings)
    journal = AsyncJournal(settings.serve.journal_path)
    app = create_app(ProxyService(settings, journal, engine, prompter))
    gc.freeze()  # what start-up made stays; looking through it again would only stall streams
    gc.set_threshold(YOUNG_OBJECTS, 20, 20)
    sys.setswitchinterval(SWITCH_SECONDS)
    logging.getLogger("uvicorn.error").addFilter(lambda record: not _is_upgrade(record))
    config = uvicorn.Config(
        app,
        host=settings.serve.host,
        port=settings.serve.port,
        loop="uvloop",
        http=BoundedProtocol,
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    uvicorn.Server(config).run(sockets=inherited_listeners() or None)


def main() -> int:
    """Entry point; exit code 2 says that the settings are wrong."""
    die_with_parent()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # while starting, and when uvicorn passes it on at the end
    try:
        settings = resolve_backend(load({})[0])
        configure_logs("proxy", settings.serve.log_level, form=settings.serve.log_format)
        serve(settings)
    except OpenClawRLError as error:
        print(f"ERROR: {error}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
