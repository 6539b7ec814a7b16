"""A cloud backend's provider by its name, its engine's command line, and its engine's client. Imports no provider's
library.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, cast

from openclaw_rl.shared.backends import engine_address
from openclaw_rl.shared.engine.client import EngineClient
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.hooks import resolve
from openclaw_rl.shared.settings.settings import Settings

if TYPE_CHECKING:
    from openclaw_rl.trainer_cloud.provider import Provider

PROVIDERS = {
    "tinker": "openclaw_rl.trainer_cloud.tinker.provider:Tinker",
    "fireworks": "openclaw_rl.trainer_cloud.fireworks.provider:Fireworks",
}


def create_provider(settings: Settings) -> Provider:
    """The provider that `settings.engine.backend` names. Raises `ConfigError`."""
    if settings.engine.backend not in PROVIDERS:
        raise ConfigError(
            f"backend = {settings.engine.backend!r} is no cloud provider; choose {' or '.join(PROVIDERS)}"
        )
    return cast("Provider", resolve(PROVIDERS[settings.engine.backend], extra="cloud")(settings))


def command(settings: Settings) -> list[str]:
    """Program and arguments; everything else, keys too, is in the environment. The caller adds `--live N=FOLDER` when
    another version than the base is live.
    """
    return [
        *(sys.executable, "-m", "openclaw_rl.trainer_cloud.engine.server"),
        *("--host", settings.engine.host, "--port", str(settings.engine.port)),
    ]


def connect(settings: Settings, *, owns: bool = False) -> EngineClient:
    """The client of the engine, which always owns its versions itself. Raises `ConfigError` when its address is not
    known.
    """
    # The proxy gives an answer up at request_timeout; the client's own limit must not race it.
    return EngineClient(engine_address(settings), request_timeout=settings.serve.request_timeout + 10.0)
