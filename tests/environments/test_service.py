"""A runner against a real proxy, killed in the middle and started again."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.processes import ROOT, Proxy

GROUP, ATTEMPTS = 4, 8


async def start(service: Proxy, folder: Path) -> asyncio.subprocess.Process:
    program = (sys.executable, "-m", "tests.environments.runner_child")
    work = (service.url, service.key, str(folder), str(GROUP), str(ATTEMPTS))
    return await asyncio.create_subprocess_exec(*program, *work, cwd=ROOT)


def lines(folder: Path, event: str) -> list[dict[str, Any]]:
    try:
        text = (folder / "attempts.jsonl").read_text()
    except FileNotFoundError:
        return []
    found = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    return [line for line in found if line["event"] == event]


@pytest.mark.slow
async def test_a_runner_that_is_killed_continues_and_every_outcome_counts_once(service: Proxy, tmp_path: Path) -> None:
    first = await start(service, tmp_path)
    while len(lines(tmp_path, "ended")) < 3:
        assert first.returncode is None
        await asyncio.sleep(0.02)
    first.kill()
    await first.wait()
    assert len(lines(tmp_path, "ended")) < ATTEMPTS

    second = await start(service, tmp_path)
    assert await second.wait() == 0
    last = [line for line in lines(tmp_path, "ended") if line["last"]]
    members = Counter((line["member"]["group"], line["member"]["number"]) for line in last)
    assert set(members.values()) == {1} and len(members) == ATTEMPTS

    journal = service.journal()
    kept = {line["session"]: line["reward"] for line in last}
    for begun in lines(tmp_path, "begun"):
        outcome, row = journal.outcome(begun["session"]), journal.session(begun["session"])
        if row is None:  # killed before the service heard of the attempt
            assert outcome is None and begun["session"] not in kept
            continue
        assert outcome is not None and outcome.done and outcome.reward == kept.get(begun["session"])
        assert [episode.ended is not None for episode in row.episodes] == [True]
    with service.client() as client:
        summary = client.get(f"/rl/sessions/{last[0]['session']}").json()
    assert [turn["kind"] for turn in summary["turns"]] == ["main"]
