"""The provider of a cloud backend by its name, and the command line of its engine. Imports no provider's library."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, cast

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.hooks import resolve
from openclaw_rl.shared.settings.settings import Settings

if TYPE_CHECKING:
    from openclaw_rl.trainer_cloud.provider import Provider

PROVIDERS = {
    "tinker": "openclaw_rl.trainer_cloud.tinker.provider:create",
    "fireworks": "openclaw_rl.trainer_cloud.fireworks.provider:create",
}


def create_provider(settings: Settings) -> Provider:
    """The provider that `settings.backend` names. Raises `ConfigError`."""
    if settings.backend not in PROVIDERS:
        raise ConfigError(f"backend = {settings.backend!r} is no cloud provider; choose {' or '.join(PROVIDERS)}")
    return cast("Provider", resolve(PROVIDERS[settings.backend], extra="cloud")(settings))


def command(settings: Settings) -> list[str]:
    """Program and arguments; everything else, keys too, is in the environment. The caller adds `--live N=FOLDER` when
    another version than the base is live.
    """
    return [
        *(sys.executable, "-m", "openclaw_rl.trainer_cloud.engine.server"),
        *("--host", settings.engine_host, "--port", str(settings.engine_port)),
    ]
