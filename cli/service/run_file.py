"""The settings of a running service, for commands that read its data folder."""

from __future__ import annotations

import contextlib
from typing import Any

from openclaw_rl.cli.client import running
from openclaw_rl.shared.backends import resolve_backend
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.settings.settings import SETTINGS, Settings

_SHARED = (
    "backend",
    "model",
    "tokenizer",
    "family",
    "tools",
    "thinking",
    "model_name",
    "context_length",
    "judge",
    "hint_model",
    "max_output_tokens",
    "engine_url",
    "cloud_daily_train_tokens",
    "cloud_daily_steps",
    "cloud_daily_chat_tokens",
    "cloud_prices",
)


def shared_settings(settings: Settings) -> dict[str, Any]:
    """The settings that other commands share with the service, for its card."""
    return {name: settings.value(name) for name in _SHARED} | {"checkpoints": str(settings.checkpoints_path)}


def as_served(settings: Settings) -> Settings:
    """The settings with those of the service that runs on the data folder, if one does, and with the backend that
    `local` or `cloud` means.
    """
    for role in ("engine", "proxy", "learner"):
        card = running(settings.serve.data, role)
        if card is not None and "settings" in card:
            settings = settings.replace(**{name: value for name, value in card["settings"].items() if name in SETTINGS})
            break
    with contextlib.suppress(ConfigError):
        return resolve_backend(settings)
    return settings
