"""Reports of doctor on SGLang, whose environment is faked: a Python with metadata of packages that are not there."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.cli.checks import sglang
from openclaw_rl.cli.checks.check import Check
from openclaw_rl.cli.checks.gpu import gpu_checks
from openclaw_rl.cli.checks.sglang import compare_nccl, lacking_tools, sglang_checks
from openclaw_rl.shared.gpus import imagined
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_local.placement.place import place
from tests.shared.faked_gpus import faked_smi, row

MODEL = {"model": "Qwen/Qwen3-0.6B", "max_sample_tokens": 8192, "context_length": 8192}
NEWER = "2.30.7"


def program(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def python(tmp_path: Path) -> str:
    """The Python of an environment with SGLang, NCCL and ninja."""
    for name, version in (("sglang", "0.5.23"), ("nvidia-nccl-cu13", NEWER)):
        folder = tmp_path / "site" / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    program(tmp_path / "bin" / "ninja")
    run = f'PYTHONPATH={tmp_path / "site"} exec {sys.executable} "$@"'
    return str(program(tmp_path / "bin" / "python", run))


@pytest.fixture
def two_faked_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cards of 80 GB, and nothing else on PATH than the driver's program."""
    (tmp_path / "driver").mkdir()
    faked_smi(tmp_path / "driver", [row(0, 80), row(1, 80)])
    monkeypatch.setenv("PATH", str(tmp_path / "driver"))
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_HOME", "CUDA_PATH", "CXX", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


def found(python: str, *, with_gpus: str = "", **changes: Any) -> list[Check]:
    settings = Settings(**{"backend": "megatron", "sglang_python": python, **MODEL, **changes})
    placed = gpu_checks(settings, with_gpus)[1]
    return list(sglang_checks(settings, placed, here=not with_gpus))


def test_doctor_names_what_sglang_needs_to_compile_on_a_machine_with_faked_gpus(
    tmp_path: Path, python: str, two_faked_gpus: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sglang, "TOOLKIT", str(tmp_path / "none"))
    version, tools = found(python)
    assert version == Check("sglang", True, f"0.5.23 in {python}")
    assert tools.ok is False and f"{tmp_path / 'none/bin/nvcc'} (install NVIDIA's CUDA toolkit" in tools.message
    assert "a C++ compiler, c++" in tools.message and "ninja" not in tools.message, "it is beside SGLang's Python"
    (tmp_path / "bin" / "ninja").unlink()
    assert "ninja (install it with pip" in found(python)[1].message
    program(tmp_path / "bin" / "ninja")
    program(tmp_path / "driver" / "c++")
    program(tmp_path / "cuda" / "bin" / "nvcc")
    assert found(python)[1].ok is False
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    assert found(python) == [version]


def test_doctor_looks_for_tools_only_where_sglang_is_started_on_this_machines_gpus(
    python: str, two_faked_gpus: None
) -> None:
    assert len(found(python)) == 2
    assert len(found(python, with_gpus="2x80")) == len(found(python, device="cpu")) == 1
    (line,) = found("", sglang_command="docker run --name {name} {env} sglang")
    assert line.ok is None and "its version is not looked at" in line.message


def test_doctor_finds_tools_as_sglang_does(tmp_path: Path) -> None:
    for name in ("ninja", "g++-14", "nvcc"):
        program(tmp_path / "bin" / name)
    known = {"PATH": str(tmp_path / "bin"), "CXX": "g++-14"}
    assert list(lacking_tools(known)) == []
    # A variable that names another folder wins, whatever is on PATH.
    (missing,) = lacking_tools(known | {"CUDA_HOME": "/nowhere"})
    assert missing.startswith("/nowhere/bin/nvcc")
    (missing,) = lacking_tools(known | {"CXX": "g++-99"})
    assert "a C++ compiler, g++-99" in missing


def test_doctor_says_that_pythons_header_is_missing(
    tmp_path: Path, two_faked_gpus: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sglang, "lacking_tools", lambda _: iter(()))
    answer = '{"versions": {"sglang": "0.5.23"}, "header": "/include/Python.h", "has_header": false}'
    python = program(tmp_path / "python", f"echo '{answer}'")
    assert "lacks /include/Python.h (on Debian: apt-get install python3-dev" in found(str(python))[1].message


def test_doctor_compares_nccl_where_full_weights_go_between_faked_gpus(
    python: str, two_faked_gpus: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sglang, "lacking_tools", lambda _: iter(()))
    monkeypatch.setattr(sglang, "_version", lambda name: "2.29.7" if name == "nvidia-nccl-cu13" else "")
    (_, nccl) = found(python, lora=False)
    assert (nccl.name, nccl.ok) == ("nccl", None)
    assert f"2.29.7 here and {NEWER} in {python}" in nccl.message
    assert nccl.message.endswith(f"{sys.executable} -m pip install --no-deps nvidia-nccl-cu13=={NEWER}")
    assert len(found(python)) == 1, "adapters go by files"
    assert len(found(python, lora=False, train=False)) == 1
    on_one = place(Settings(backend="megatron", lora=False, **MODEL), imagined("80"))
    assert on_one.weight_transfer == "disk"
    settings = Settings(backend="megatron", lora=False, sglang_python=python, **MODEL)
    assert [check.name for check in sglang_checks(settings, on_one, here=True)] == ["sglang"]


def test_the_older_nccl_is_the_one_to_replace(monkeypatch: pytest.MonkeyPatch) -> None:
    def compared(ours: str, theirs: str) -> Check | None:
        monkeypatch.setattr(sglang, "_version", lambda name: ours if name == "nvidia-nccl-cu13" else "")
        return compare_nccl({"nvidia-nccl-cu13": theirs} if theirs else {}, "/sglang/python")

    older = compared("2.30.10", "2.30.7")
    assert older is not None and older.message.endswith(
        "/sglang/python -m pip install --no-deps nvidia-nccl-cu13==2.30.10"
    )
    assert compared("2.30.7", "2.30.7") == Check("nccl", True, "2.30.7 in both environments")
    assert compared("", "2.30.7") is compared("2.30.7", "") is None


def test_a_version_is_read_from_what_is_installed() -> None:
    assert sglang._version("pytest") == importlib.metadata.version("pytest") and sglang._version("none-such") == ""


@pytest.mark.parametrize(("gpus", "fatal"), [("2x80", False), ("4x80", True)])
def test_doctor_checks_the_line_of_a_container_for_the_gpus_of_its_server(gpus: str, fatal: bool) -> None:
    """Of two GPUs one serves; of four, two."""
    line = "docker run --name {name} {env} --gpus device={gpus} sglang"
    checks = found("", with_gpus=gpus, sglang_command=line)
    assert [check.ok for check in checks] == [None, *([False] if fatal else [])]
    assert not fatal or "Write the quotes that docker needs" in checks[1].message


def test_sglang_finds_the_programs_of_its_environment(python: str) -> None:
    """It is not activated, and SGLang calls ninja by its name."""
    from openclaw_rl.trainer_local.sglang.launch import variables

    settings = Settings(backend="megatron", sglang_python=python)
    assert variables(settings)["PATH"].split(os.pathsep)[0] == str(Path(python).parent)
    assert "PATH" not in variables(settings.replace(sglang_command="docker run sglang"))
