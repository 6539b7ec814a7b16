"""The older Tinker client as a second witness: the trainer and engine contracts run again with tinker 0.24.1, and the
server as it is, without the shim that lets newer clients in.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.processes import ROOT
from tests.rigs.environments import environment

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("suite", ["test_tinker_trainer.py", "test_tinker_engine.py"])
def test_the_contract_holds_with_the_older_client(suite: str, tmp_path: Path) -> None:
    python, report = environment("tinker_old") / "bin" / "python", tmp_path / "report.xml"
    done = subprocess.run(
        [
            *(str(python), "-m", "pytest", "-m", "real", "-p", "no:cacheprovider", "-o", "addopts=", "-rA"),
            *("--junitxml", str(report), f"tests/real/{suite}"),
        ],
        cwd=ROOT,
        env=os.environ | {"TINKER_OLD_CLIENT": "1"},
        capture_output=True,
        text=True,
        timeout=1700,
    )
    said = done.stdout[-6000:]
    assert done.returncode == 0, said
    cases = list(ElementTree.parse(report).iter("testcase"))
    passed = [case.get("name") for case in cases if not {child.tag for child in case} & {"skipped", "failure", "error"}]
    assert len(passed) >= 12, said


def test_it_is_the_older_client() -> None:
    python = environment("tinker_old") / "bin" / "python"
    program = "import tinker; print(tinker.__version__)"
    done = subprocess.run([str(python), "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "0.24.1", done.stderr
