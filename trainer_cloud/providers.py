"""Providers by the name of their backend."""

from __future__ import annotations

from typing import cast

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.hooks import resolve
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_cloud.provider import Provider

PROVIDERS = {
    "tinker": "openclaw_rl.trainer_cloud.tinker.provider:create",
    "fireworks": "openclaw_rl.trainer_cloud.fireworks.provider:create",
}


def create(settings: Settings) -> Provider:
    """The provider that `settings.backend` names. Raises `ConfigError`."""
    if settings.backend not in PROVIDERS:
        raise ConfigError(f"backend = {settings.backend!r} is no cloud provider; choose {' or '.join(PROVIDERS)}")
    return cast(Provider, resolve(PROVIDERS[settings.backend], extra="cloud")(settings))
