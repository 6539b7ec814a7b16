"""Runs the real mini-swe-agent, its command `mini`, against a running service."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.processes import Proxy
from tests.rigs.environments import clean_environment, environment
from tests.rigs.programs import output_of

SECONDS = 200.0


def run_mini(service: Proxy, folder: Path, task: str, *, model: str, settings: str, **model_settings: str) -> Any:
    """Its trajectory of `task` in `folder`/work. `model` is LiteLLM's name of one, `settings` a file of its own,
    `model_settings` override those. Skips the test where its environment is not there.
    """
    program = environment("mini_swe_agent") / "bin" / "mini"
    work = folder / "work"
    work.mkdir(exist_ok=True)
    trajectory = folder / "trajectory.json"
    base = service.url if model.startswith("anthropic/") else f"{service.url}/v1"
    changes = {"model_kwargs.api_base": base, "model_kwargs.api_key": service.key, **model_settings}
    command = [str(program), "-m", model, "-t", task, "-y", "--exit-immediately", "-o", str(trajectory)]
    for setting in (settings, "agent.cost_limit=0", *(f"model.{name}={value}" for name, value in changes.items())):
        command += ["-c", setting]
    variables = clean_environment(
        folder,
        MSWEA_CONFIGURED="true",
        MSWEA_COST_TRACKING="ignore_errors",
        MSWEA_GLOBAL_CONFIG_DIR=str(folder / "config"),
        MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT="1",
        LITELLM_LOCAL_MODEL_COST_MAP="True",
    )
    output_of(command, work, variables, SECONDS)
    return json.loads(trajectory.read_text())
