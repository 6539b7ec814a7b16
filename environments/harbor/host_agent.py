"""Agents of ours in Harbor: they run out here, and act by `environment.exec`. Runs in Harbor's own Python."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harbor.agents.base import BaseAgent
from harbor.environments.base import BaseEnvironment

from openclaw_rl.environments.agents.computer import Execute
from openclaw_rl.environments.attempt import Endpoint
from openclaw_rl.environments.sandbox.sandbox import CommandResult

TIMED_OUT = 124


def executor(environment: BaseEnvironment) -> Execute:
    """`environment.exec` as our tools call it: a command and its seconds."""

    async def execute(command: str, seconds: float) -> CommandResult:
        try:
            result = await environment.exec(command, timeout_sec=max(1, round(seconds)))
        except RuntimeError as error:  # Harbor's other environments
            if "timed out" not in str(error):
                raise
            return CommandResult(stdout="", stderr="", code=None)
        code = None if result.return_code == TIMED_OUT else result.return_code
        return CommandResult(stdout=result.stdout or "", stderr=result.stderr or "", code=code)

    return execute


class HostAgent(BaseAgent):
    """An agent of ours. `endpoint` is its policy; `settings` are the options that are its own."""

    def __init__(
        self,
        logs_dir: Path,
        model_name: str | None = None,
        *,
        endpoint: Mapping[str, str],
        max_steps: int,
        logger: logging.Logger | None = None,
        **settings: Any,
    ) -> None:
        for name in ("mcp_servers", "skills_dir", "extra_env", "load_trajectory", "override_setup_timeout_sec"):
            settings.pop(name, None)
        super().__init__(logs_dir, model_name, logger)
        self.endpoint = Endpoint(**endpoint)
        self.max_steps = max_steps
        self.settings = settings

    def version(self) -> str | None:
        """It has none of its own."""
        return None

    async def setup(self, environment: BaseEnvironment) -> None:
        """Nothing to install."""
