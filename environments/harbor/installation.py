"""The environment that Harbor runs in, with a later Python than ours: `openclaw-rl env setup harbor` makes it."""

from __future__ import annotations

from pathlib import Path

from openclaw_rl.environments.python_environment import PythonEnvironment
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.settings.named_models import user_cache

PINS = Path(__file__).with_name("requirements.txt")
SETUP = "openclaw-rl env setup harbor"


def harbor_environment() -> PythonEnvironment:
    """The environment, made or not. Raises `ConfigError` if the user has no folder for it."""
    return PythonEnvironment(folder=user_cache("harbor"), pins=PINS, minors=(12, 13))


def harbor_python() -> Path:
    """The Python of the environment. Raises `ConfigError` if it is not made, or not with these pins."""
    environment = harbor_environment()
    if not environment.is_made():
        raise ConfigError(f"Harbor is not set up: {SETUP}")
    return environment.python
