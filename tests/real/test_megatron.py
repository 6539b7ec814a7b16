"""The tests of the Megatron-core trainer, run where Megatron-core is: in an environment of the rigs, over this one."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.processes import ROOT
from tests.rigs import megatron_cpu
from tests.rigs.environments import environment

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(importlib.util.find_spec("megatron") is not None, reason="they run in this environment"),
]

SUITES = {
    "test_megatron_trainer.py": 100,
    "test_megatron_equality.py": 50,
    "test_megatron_memory.py": 2,
    "test_megatron_options.py": 15,
    "test_megatron_ranks.py": 17,
    "test_megatron_stop.py": 3,
}
"""The least number of tests that pass in each."""
SHIMMED = ("test_megatron_options.py",)
"""Those that need the rig's answers for CUDA; the others show that all else runs as it is."""


@pytest.mark.parametrize("suite", list(SUITES))
def test_it_passes_on_a_cpu(suite: str, tmp_path: Path) -> None:
    python, report = environment("megatron_cpu") / "bin" / "python", tmp_path / "report.xml"
    done = subprocess.run(
        [
            *(str(python), "-m", "pytest", "-m", "real", "-p", "no:cacheprovider", "-o", "addopts=", "-W", "ignore"),
            *("--junitxml", str(report), f"tests/real/{suite}"),
        ],
        cwd=ROOT,
        env={**(megatron_cpu.environment() if suite in SHIMMED else os.environ), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=3500,
    )
    said = done.stdout[-6000:]
    assert done.returncode == 0, said
    cases = list(ElementTree.parse(report).iter("testcase"))
    passed = [case for case in cases if not {child.tag for child in case} & {"skipped", "failure", "error"}]
    assert len(passed) >= SUITES[suite], said
