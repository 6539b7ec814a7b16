"""`openclaw-rl demo --backend tinker --method binary`, from chat to published versions, over an independent server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from openclaw_rl.shared.settings.settings import EMBEDDED_POLICY
from tests.processes import ROOT
from tests.rigs.tinker_server import KEY, TinkerServer, run_tinker_server

pytestmark = [pytest.mark.real, pytest.mark.timeout(1500)]

LEARNING = {"LORA_RANK": "8", "LEARNING_RATE": "3e-3", "EPOCHS": "4", "VOTES": "1"}
"""The policy that ships is thousands of times smaller than what providers have, and takes larger steps."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TinkerServer]:
    shim = not os.environ.get("TINKER_OLD_CLIENT")
    with run_tinker_server(EMBEDDED_POLICY, tmp_path_factory.mktemp("tinker"), shim=shim) as running:
        yield running


@pytest.fixture(scope="module")
def result(server: TinkerServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The last line that the demo prints."""
    options = {
        "backend": "tinker",
        "model": server.base_model,
        "method": "binary",
        "seeds": "1",
        "interactions": "32",
        "problems": "24",
        "batch-size": "8",
        "out": str(tmp_path_factory.mktemp("demo")),
    }
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OPENCLAW_", "TINKER_"))}
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "openclaw_rl.cli.main",
            "demo",
            *(part for item in options.items() for part in _flag(*item)),
        ],
        cwd=ROOT,
        env=kept
        | {f"OPENCLAW_RL_{name}": value for name, value in LEARNING.items()}
        | {"TINKER_API_KEY": KEY, "TINKER_BASE_URL": server.url, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _flag(name: str, value: str) -> tuple[str, str]:
    return f"--{name}", value


def test_it_goes_from_chat_to_published_versions(result: dict[str, Any]) -> None:
    assert result["backend"] == "tinker"
    assert result["trained"]["versions"] >= [3] and result["control"]["versions"] == [0]
    assert result["trained"]["lost_turns"] == result["control"]["lost_turns"] == 0


def test_the_policy_moves_in_the_rewarded_direction_and_the_control_does_not(result: dict[str, Any]) -> None:
    trained, control = result["trained"]["style"], result["control"]["style"]
    assert trained[1] - trained[0] > 0.3
    assert abs(control[1] - control[0]) < 0.15
