"""The process of a cloud backend's engine: `python -m openclaw_rl.trainer_cloud.engine.server`, over the wire of
`shared.engine.server`.

Settings come from the environment (`OPENCLAW_RL_*`), keys among them, so that no process list shows them.
"""

from __future__ import annotations

import argparse
import logging
import sys

from starlette.applications import Starlette

from openclaw_rl.shared.backends import resolve_backend
from openclaw_rl.shared.engine.server import create_app, http_server, live_version
from openclaw_rl.shared.errors import OpenClawRLError
from openclaw_rl.shared.logs import ENGINE_PLAIN, configure_logs
from openclaw_rl.shared.process import die_with_parent
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.shared.settings.sources import load
from openclaw_rl.trainer_cloud import launch
from openclaw_rl.trainer_cloud.budget.budget import Budget
from openclaw_rl.trainer_cloud.engine.engine import CloudEngine
from openclaw_rl.trainer_cloud.provider import Provider

log = logging.getLogger("engine")


def application(settings: Settings, provider: Provider, *, live: tuple[int, str] | None = None) -> Starlette:
    """The ASGI application. Raises `ConfigError`."""
    budget = Budget(settings, provider.name, settings.engine.model)
    return create_app(CloudEngine(provider, settings, budget, live=live))


def main(arguments: list[str] | None = None) -> int:
    """Serve until SIGTERM; the exit code."""
    die_with_parent()
    parser = argparse.ArgumentParser(description="Serve a model of a cloud provider over SGLang's wire.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--live", default="", metavar="N=PATH", help="version that is live from the start")
    flags = parser.parse_args(arguments)
    try:
        settings = resolve_backend(load({})[0])
        configure_logs("engine", settings.serve.log_level, form=settings.serve.log_format, plain=ENGINE_PLAIN)
        for noisy in ("httpx", "tinker", "fireworks"):
            logging.getLogger(noisy).setLevel(logging.WARNING)
        app = application(settings, launch.create_provider(settings), live=live_version(flags.live))
    except OpenClawRLError as error:
        print(f"ERROR {error}", file=sys.stderr)
        return 2
    log.info("serving %s at %s", settings.engine.model, settings.engine.backend)
    server = http_server(app, host=flags.host, port=flags.port)
    server.run()
    return 0 if server.started else 1


if __name__ == "__main__":
    sys.exit(main())
