"""The command line that starts the embedded engine. Imports no torch: the supervisor calls this."""

from __future__ import annotations

import sys

from openclaw_rl.shared.settings.settings import Settings


def command(settings: Settings) -> list[str]:
    """Program and arguments. The caller adds `--live N=FOLDER` when another version than the base is live.

    `settings.engine.port` should be a real port: with 0 the engine takes a free one, which the caller does not learn.
    """
    return [
        *(sys.executable, "-m", "openclaw_rl.trainer_local.embedded.server", "--incremental-streaming-output"),
        *("--model", settings.engine.model, "--tokenizer", settings.engine.tokenizer_path),
        *("--host", settings.engine.host, "--port", str(settings.engine.port)),
        *("--checkpoints", str(settings.checkpoints_path), "--device", settings.engine.device),
        *("--context-length", str(settings.engine.context_length)),
        *("--max-versions", str(settings.engine.max_versions), "--log-level", settings.serve.log_level),
    ]
