"""The command line that starts the engine of a cloud backend. Imports no provider's library."""

from __future__ import annotations

import sys

from openclaw_rl.shared.settings.settings import Settings


def command(settings: Settings) -> list[str]:
    """Program and arguments; everything else, keys too, is in the environment. The caller adds `--live N=FOLDER` when
    another version than the base is live.
    """
    return [
        *(sys.executable, "-m", "openclaw_rl.trainer_cloud.engine.server"),
        *("--host", settings.engine_host, "--port", str(settings.engine_port)),
    ]
