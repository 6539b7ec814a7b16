"""A short soak: every figure is there, and no turn is lost."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_a_short_run_gives_every_figure_and_loses_nothing() -> None:
    command = [sys.executable, "-m", "bench.soak", "--turns", "200", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=180)
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["turns"], found["lost"]) == (200, 0)
    assert found["journal_bytes_per_turn"] > 0 and found["p99_ratio"] > 0
    assert {"proxy_slope_kb_per_1000", "learner_slope_kb_per_1000"} <= found.keys()
