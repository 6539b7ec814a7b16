"""Runs Harbor's agent Terminus-2 on a task of ours, in a folder of this machine, against a running service."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.processes import Proxy
from tests.rigs.environments import clean_environment, environment
from tests.rigs.programs import output_of

SECONDS = 300.0
_TASK = """schema_version = "1.4"
[agent]
timeout_sec = 240.0
[environment]
build_timeout_sec = 60.0
"""


def run_terminus(service: Proxy, folder: Path, instruction: str, **options: Any) -> Path:
    """The folder that it worked in, `folder`/host/app. `options` are the agent's own. Skips the test where its
    environment, or tmux, is not there.
    """
    harbor = environment("harbor") / "bin" / "harbor"
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    task = folder / "task"
    (task / "environment").mkdir(parents=True)
    (task / "tests").mkdir()
    (task / "task.toml").write_text(_TASK)
    (task / "instruction.md").write_text(instruction)
    (task / "environment" / "Dockerfile").write_text("FROM scratch\n")
    (task / "tests" / "test.sh").write_text("exit 0\n")
    values = {
        "api_base": f"{service.url}/v1",
        "record_terminal_session": False,
        "model_info": {"max_input_tokens": 32768, "max_output_tokens": 1024},
        **options,
    }
    command = [
        *(str(harbor), "run", "--path", str(task), "--agent", "terminus-2", "--model", "openai/policy"),
        *("--environment-import-path", "host_environment:HostEnvironment", "--disable-verification", "--yes"),
        *("--jobs-dir", str(folder / "jobs"), "--job-name", "job", "--n-concurrent", "1", "--quiet"),
    ]
    for name, value in values.items():
        command += ["--agent-kwarg", f"{name}={value if isinstance(value, str) else json.dumps(value)}"]
    variables = clean_environment(
        folder,
        PYTHONPATH=str(Path(__file__).parent),
        HOST_ENVIRONMENT=str(folder / "host"),
        OPENAI_API_KEY=service.key,
        LITELLM_LOCAL_MODEL_COST_MAP="True",
        HARBOR_TELEMETRY="off",
        DO_NOT_TRACK="1",
    )
    said = output_of(command, folder, variables, SECONDS)
    results = list((folder / "jobs").glob("*/*/result.json"))
    assert len(results) == 1, said[-4000:]
    result = json.loads(results[0].read_text())
    assert result.get("exception_info") is None, json.dumps(result["exception_info"])[-3000:]
    return folder / "host" / "app"
