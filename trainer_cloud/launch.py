"""The engine of a cloud backend: the command line that starts it, and its client. Imports no provider's library."""

from __future__ import annotations

import sys

from openclaw_rl.shared.backends import engine_address
from openclaw_rl.shared.engine.client import EngineClient
from openclaw_rl.shared.settings.settings import Settings

_GRACE_SECONDS = 10.0
"""The proxy gives an answer up at `request_timeout`; the client's own limit must not race it."""


def connect(settings: Settings, *, owns: bool = False) -> EngineClient:
    """The client of the engine, which always owns its versions itself. Raises `ConfigError` when its address is not
    known.
    """
    return EngineClient(engine_address(settings), request_timeout=settings.request_timeout + _GRACE_SECONDS)


def command(settings: Settings) -> list[str]:
    """Program and arguments; everything else, keys too, is in the environment. The caller adds `--live N=FOLDER` when
    another version than the base is live.
    """
    return [
        *(sys.executable, "-m", "openclaw_rl.trainer_cloud.engine.server"),
        *("--host", settings.engine_host, "--port", str(settings.engine_port)),
    ]
