from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from openclaw_rl.trainer_local.placement.compiler import why_no_compiler


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of a machine that has Triton and gcc."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name == "triton" or None)
    (tmp_path / "gcc").touch(0o755)
    return {"PATH": str(tmp_path)}


def test_with_triton_and_a_c_compiler_it_can_be_used(tools: dict[str, str]) -> None:
    assert why_no_compiler(tools) == why_no_compiler({**tools, "CC": "gcc", "TORCH_COMPILE_DISABLE": "0"}) == ""


def test_missing_tools_are_named(tools: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert why_no_compiler({**tools, "TORCH_COMPILE_DISABLE": "1"}) == "TORCH_COMPILE_DISABLE = 1"
    assert why_no_compiler({**tools, "CC": "tcc"}).startswith("tcc is not there")
    assert why_no_compiler({"PATH": "/nowhere"}).startswith("a C compiler is not there")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert why_no_compiler(tools).startswith("Triton is not installed")
