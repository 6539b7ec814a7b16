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

WORKER = "openclaw_rl.trainer_local.megatron.worker"

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(importlib.util.find_spec("megatron") is not None, reason="they run in this environment"),
]

SUITES = {
    ("test_megatron_trainer.py", 1): 52,
    ("test_megatron_trainer.py", 2): 72,
    ("test_megatron_equality.py", 1): 25,
    ("test_megatron_equality.py", 2): 47,
    ("test_megatron_experts.py", 1): 6,
    ("test_megatron_experts.py", 2): 9,
    ("test_megatron_memory.py", 1): 2,
    ("test_megatron_out_of_memory.py", 1): 5,
    ("test_megatron_out_of_memory.py", 2): 5,
    ("test_megatron_options.py", 1): 16,
    ("test_megatron_options.py", 2): 12,
    ("test_megatron_ranks.py", 1): 19,
    ("test_megatron_ranks.py", 2): 6,
}
"""The least number of tests that pass in each, by the number of processes that train."""
SHIMMED = ("test_megatron_options.py",)
"""Those that need the rig's answers for CUDA; the others show that all else runs as it is."""


@pytest.mark.parametrize(("suite", "processes"), list(SUITES))
def test_it_passes_on_a_cpu(suite: str, processes: int, tmp_path: Path) -> None:
    python, report = environment("megatron_cpu") / "bin" / "python", tmp_path / "report.xml"
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes), "-m", WORKER)
    done = subprocess.run(
        [
            *(str(python), *(torchrun if processes > 1 else ())),
            *("-m", "pytest", "-m", "real", "-p", "no:cacheprovider", "-o", "addopts=", "-W", "ignore"),
            *("--junitxml", str(report), f"tests/real/{suite}"),
        ],
        cwd=ROOT,
        env={**(megatron_cpu.environment() if suite in SHIMMED else os.environ), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=3500,
    )
    said = done.stdout[-6000:] + done.stderr[-2000:]
    assert done.returncode == 0, said
    cases = list(ElementTree.parse(report).iter("testcase"))
    passed = [case for case in cases if not {child.tag for child in case} & {"skipped", "failure", "error"}]
    assert len(passed) >= SUITES[suite, processes], said
