"""A short run of bench.chaos finds nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.real
@pytest.mark.timeout(600)
def test_kills_under_traffic_lose_nothing() -> None:
    command = [sys.executable, "-m", "bench.chaos", "--kills", "2", "--no-trials", "--settle", "20", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert (result["kills"], result["journal"], result["faults"]) == (2, "ok", []) and result["turns"] > 0
