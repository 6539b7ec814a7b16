"""The script for a day with a card: its end, and its wheels. tests/real/test_gpu_day.py runs its steps."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.processes import ROOT

SCRIPT = "bench/gpu_day.sh"
ON_THE_MACHINE = ("torch", "transformers", "peft", "accelerate")


def executed(*arguments: str, cwd: Path = ROOT, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables}
    command = ["bash", SCRIPT, *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=60)


def program(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def needed(names: Iterable[str]) -> set[str]:
    """The distributions of this environment that `names` need, themselves included."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = canonical(waiting.pop())
        if name in found:
            continue
        found.add(name)
        requirements = map(Requirement, importlib.metadata.requires(name) or [])
        waiting += [one.name for one in requirements if one.marker is None or one.marker.evaluate({"extra": ""})]
    return found


def test_an_unknown_step_is_refused_with_the_usage() -> None:
    done = executed("7")
    assert done.returncode == 2
    assert "bench/gpu_day.sh [--device cuda:0] [STEP" in done.stderr


def test_a_step_that_fails_does_not_stop_the_next_one(tmp_path: Path) -> None:
    folders = {"OUT": str(tmp_path / "out"), "MODELS": str(tmp_path / "models")}
    done = executed("--device", "cpu", "1", "4", PYTHON=program(tmp_path / "python", "exit 1"), **folders)
    assert done.returncode == 1
    summary = (tmp_path / "out" / "summary.txt").read_text().splitlines()
    assert [line.partition(",")[0] for line in summary] == ["step 1: FAIL", "step 4: FAIL"]
    assert "has no Megatron-core" in (tmp_path / "out" / "step-4.log").read_text()


def test_a_step_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    folders = {"OUT": str(tmp_path / "out"), "MODELS": str(tmp_path / "models")}
    slow = program(tmp_path / "python", "exec sleep 50")
    done = executed("--device", "cpu", "1", PYTHON=slow, LIMIT="1", **folders)
    assert done.returncode == 1
    assert "step 1: FAIL, it took more than 1 s" in done.stdout


def test_each_command_of_a_step_runs_and_one_that_fails_is_named(tmp_path: Path) -> None:
    folders = {"OUT": str(tmp_path / "out"), "MODELS": str(tmp_path / "models")}
    choosy = program(tmp_path / "python", 'case "$*" in *binary*) exit 3 ;; esac')
    done = executed("--device", "cpu", "4", PYTHON=choosy, **folders)
    assert done.returncode == 1
    ran = [line for line in done.stdout.splitlines() if line.startswith("+ ")]
    assert len(ran) == 2 and "rehearse" in ran[1]
    (last,) = (tmp_path / "out" / "summary.txt").read_text().splitlines()
    assert "failed with exit code 3" in last and "--method binary" in last


def test_a_result_of_an_earlier_run_is_not_left_for_one_that_fails(tmp_path: Path) -> None:
    folders = {"OUT": str(tmp_path / "out"), "MODELS": str(tmp_path / "models")}
    (tmp_path / "out").mkdir()
    for name in ("4-binary", "4-rehearse", "2-256"):
        (tmp_path / "out" / f"{name}.json").write_text("{}")
    choosy = program(tmp_path / "python", 'case "$*" in *bench*) exit 3 ;; esac')
    assert executed("--device", "cpu", "4", PYTHON=choosy, **folders).returncode == 1
    assert [path.name for path in (tmp_path / "out").glob("*.json")] == ["2-256.json"], "of another step"


def test_the_wheels_are_pinned_and_complete_by_a_stand_in_for_pip(tmp_path: Path) -> None:
    for name in (SCRIPT, "constraints.txt", "tests/rigs/megatron_cpu/requirements.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "bin").mkdir()
    program(tmp_path / "bin" / "python3", f'echo "$*" > {tmp_path}/asked')
    done = executed("wheels", cwd=tmp_path, PATH=f"{tmp_path}/bin:{os.environ['PATH']}")
    assert done.returncode == 0, done.stderr
    words = (tmp_path / "asked").read_text().split()
    pins = {canonical(word.partition("==")[0]) for word in words if "==" in word}
    assert "--no-deps" in words and "--python-version" in words
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    ours = [Requirement(one).name for one in project["dependencies"]]
    wanted = needed([*ours, "gguf", "pytest", "pytest-asyncio", "pytest-timeout", "hypothesis"])
    assert wanted - needed(ON_THE_MACHINE) <= pins
    assert "megatron-core" in pins


@pytest.mark.parametrize("pin", ["msgspec==", "uvloop=="])
def test_a_wheel_without_a_pin_is_an_error(pin: str, tmp_path: Path) -> None:
    for name in (SCRIPT, "tests/rigs/megatron_cpu/requirements.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    (tmp_path / "constraints.txt").write_text("\n".join(line for line in lines if not line.startswith(pin)))
    done = executed("wheels", cwd=tmp_path)
    assert done.returncode == 1
    assert f"{pin.removesuffix('==')} is not in constraints.txt" in done.stderr


def test_sglangs_archive_is_built_on_demand_and_used_by_step_6(tmp_path: Path) -> None:
    (tmp_path / "bench").mkdir()
    shutil.copy(ROOT / SCRIPT, tmp_path / SCRIPT)
    (tmp_path / "bin").mkdir()
    program(tmp_path / "bin" / "python3", f'echo "$*" > {tmp_path}/asked')
    done = executed("sglang", cwd=tmp_path, PATH=f"{tmp_path}/bin:{os.environ['PATH']}")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "asked").read_text() == "tests/rigs/sglang_cuda/build.py\n"

    case = (
        'case "$*" in *start.py) echo packed ;; *engine_mismatch*) echo "serves: $OPENCLAW_RL_SGLANG_COMMAND" ;; esac'
    )
    python = program(tmp_path / "python", case)
    unset = {"OPENCLAW_RL_SGLANG_PYTHON": "", "OPENCLAW_RL_SGLANG_COMMAND": ""}
    assert "SGLang is skipped: " in executed("6", cwd=tmp_path, PYTHON=python, **unset).stdout
    archive = tmp_path / ".cache" / "rigs" / "sglang_cuda" / "sglang.tar.xz"
    archive.parent.mkdir(parents=True)
    archive.touch()
    assert executed("6", cwd=tmp_path, PYTHON=python, **unset).stdout.count("serves: packed") == 3
    own = executed("6", cwd=tmp_path, PYTHON=python, **unset | {"OPENCLAW_RL_SGLANG_COMMAND": "own"}).stdout
    assert own.count("serves: own") == 3 and "packed" not in own
