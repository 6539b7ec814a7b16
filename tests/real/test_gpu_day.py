"""The six steps for a day with a card, rehearsed on a CPU at tiny sizes, and the tests of what they run.

Step 6 starts the real SGLang where its environment is there; else it says that it is skipped.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.processes import ROOT
from tests.rigs import megatron_cpu
from tests.rigs.environments import environment
from tests.rigs.sglang_cpu import ENVIRONMENT as SGLANG

pytestmark = [pytest.mark.real, pytest.mark.timeout(1500)]

RESULTS = {
    1: ["1-attention", "1-bfloat16", "1-float32"],
    2: ["2-256", "2-512", "2-turns-binary", "2-turns-combined", "2-turns-rehearse"],
    3: ["3-all-weights", "3-offload", "3-profile"],
    4: ["4-binary", "4-rehearse"],
    5: ["5-live"],
    6: ["6-embedded"],
}


@pytest.fixture(scope="module")
def python() -> Path:
    return environment("megatron_cpu") / "bin" / "python"


@pytest.mark.parametrize("step", RESULTS)
def test_a_step_runs_to_its_end_and_leaves_its_results(step: int, python: Path, tmp_path: Path) -> None:
    variables = {"OUT": str(tmp_path), "MODELS": str(tmp_path / "models"), "LIMIT": "1400", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        ["bash", "bench/gpu_day.sh", "--device", "cpu", str(step)],
        cwd=ROOT,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=1450,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    (summary,) = (tmp_path / "summary.txt").read_text().splitlines()
    assert summary.startswith(f"step {step}: pass")
    names = [*RESULTS[step], *(["6-sglang"] if step == 6 and (SGLANG / "bin" / "python").exists() else [])]
    found: dict[str, Any] = {name: json.loads((tmp_path / f"{name}.json").read_text()) for name in names}
    assert {path.stem for path in tmp_path.glob("*.json")} == set(names)
    for result in found.values():
        assert result["command"].startswith("python -m bench.")
        assert all(check["passed"] for check in result.get("checks", []))
    if step == 3:
        assert (tmp_path / "3-profile" / "lora-recompute.txt").read_text()
    if step == 6:
        assert ("SGLang is skipped: " in summary) == ("6-sglang" not in names)


def test_the_programs_tests_pass_where_megatron_is(python: Path) -> None:
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "addopts=", "-W", "ignore"]
    done = subprocess.run(
        [*command, "tests/bench/test_megatron_gpu.py"],
        cwd=ROOT,
        env={**megatron_cpu.environment(), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=1000,
    )
    assert done.returncode == 0, done.stdout[-6000:]
    assert "skipped" not in done.stdout and " passed" in done.stdout
