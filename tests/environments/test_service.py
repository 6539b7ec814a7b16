"""`openclaw-rl env train` with a service of its own, killed in the middle and resumed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.shared.journal import Journal
from openclaw_rl.shared.process import alive

ROOT = Path(__file__).resolve().parents[2]
GROUP, ATTEMPTS, HELD_OUT = 4, 8, 2


def train(folder: Path, *flags: str) -> list[str]:
    sizes = ("--group", str(GROUP), "--episodes", str(ATTEMPTS), "--held-out", str(HELD_OUT), "--concurrency", "2")
    program = (sys.executable, "-m", "openclaw_rl.cli.main", "env", "train", str(Path(__file__).with_name("parity.py")))
    return [*program, *sizes, "--out", str(folder), "--json", *flags]


def ended(folder: Path) -> list[dict[str, Any]]:
    try:
        lines = (folder / "attempts.jsonl").read_text().splitlines(keepends=True)
    except FileNotFoundError:
        return []
    found = [json.loads(line) for line in lines if line.endswith("\n")]
    return [line for line in found if line["event"] == "ended"]


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_a_run_that_is_killed_is_resumed_and_every_outcome_counts_once(tmp_path: Path) -> None:
    variables = os.environ | {"OPENCLAW_RL_BATCH_SIZE": "4", "OPENCLAW_RL_GUARD": "false"}
    first = await asyncio.create_subprocess_exec(*train(tmp_path), cwd=ROOT, env=variables)
    while len(ended(tmp_path)) < HELD_OUT + GROUP + 1:
        assert first.returncode is None
        await asyncio.sleep(0.1)
    service = json.loads((tmp_path / "service" / "run" / "proxy.json").read_text())
    first.send_signal(signal.SIGKILL)
    await first.wait()
    assert len(ended(tmp_path)) < HELD_OUT + ATTEMPTS
    while alive(int(service["pid"])):
        await asyncio.sleep(0.1)

    second = await asyncio.create_subprocess_exec(
        *train(tmp_path, "--resume"), cwd=ROOT, env=variables, stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await second.communicate()
    assert second.returncode == 0
    result = json.loads(printed)
    assert (result["train"]["attempts"], result["before"]["attempts"], result["after"]["attempts"]) == (8, 2, 2)
    assert result["train"]["no_verdict"] == {}

    last = [line for line in ended(tmp_path) if line["last"]]
    members = Counter((line["member"]["group"], line["member"]["number"]) for line in last)
    assert set(members.values()) == {1} and len(members) == 2 * HELD_OUT + ATTEMPTS
    journal = Journal(tmp_path / "service" / "journal.db")
    outcomes = {line["session"]: journal.outcome(line["session"]) for line in last if "train." in line["session"]}
    assert len(outcomes) == ATTEMPTS
    for line in last:
        if outcome := outcomes.get(line["session"]):
            assert (outcome.reward, outcome.done) == (line["reward"], True)
    assert result["version"] >= 1
