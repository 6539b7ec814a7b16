"""Settings for mini-swe-agent: its own loop, with short templates."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from openclaw_rl.shared.errors import ConfigError

SHORT = Path(__file__).with_suffix(".toml")


def settings(path: str = "") -> dict[str, dict[str, Any]]:
    """The tables `agent` and `model` of mini-swe-agent's settings, from a TOML file of yours or from ours. What a table
    does not have is as mini-swe-agent has it. Raises `ConfigError` for a file that cannot be read.
    """
    file = Path(path).expanduser() if path else SHORT
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"the settings of mini-swe-agent in {file} cannot be read: {error}") from error
    if unknown := [name for name in found if name not in ("agent", "model")]:
        raise ConfigError(f"{file}: {unknown[0]!r} is none of the tables `agent` and `model`")
    return found
