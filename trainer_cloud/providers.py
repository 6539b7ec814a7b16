"""Providers by the name of their backend."""

from __future__ import annotations

from typing import cast

from shared.errors import ConfigError
from shared.registry import resolve
from shared.settings import Settings
from trainer_cloud.provider import Provider

PROVIDERS = {"tinker": "trainer_cloud.tinker:create", "fireworks": "trainer_cloud.fireworks:create"}


def create(settings: Settings) -> Provider:
    """The provider that `settings.backend` names. Raises `ConfigError`."""
    if settings.backend not in PROVIDERS:
        raise ConfigError(f"backend = {settings.backend!r} is no cloud provider; choose {' or '.join(PROVIDERS)}")
    return cast(Provider, resolve(PROVIDERS[settings.backend], extra="cloud")(settings))
