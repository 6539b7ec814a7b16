"""Start rates: the share of held-out tasks of each family that a policy folder solves before it is trained on any.

    python -m bench.shipped_policy.start_rates [--policy DIR] [--tasks 100] [--only count,sums] [--out DIR]

Each task is attempted once, at temperature 1, by our tool loop against the real engine and proxy. Tasks at a computer
run in a sandbox, and the files that the agent left decide. `--out` keeps `attempts.jsonl`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from bench.cells.lab import lab
from bench.shipped_policy import POLICY
from bench.shipped_policy.measure import share
from openclaw_rl.environments import kinds
from openclaw_rl.environments.agents.computer import Computer
from openclaw_rl.environments.attempt import Task
from openclaw_rl.environments.attempt_log import AttemptLog
from openclaw_rl.environments.kinds import Split
from openclaw_rl.environments.pass_rate import PASSED
from openclaw_rl.environments.runner import AttemptRunner, RunPlan
from openclaw_rl.environments.sandbox.artifacts import read_file, remove_folder
from openclaw_rl.environments.sandbox.sandbox import Sandbox
from openclaw_rl.environments.steps import Observation, Verdict
from openclaw_rl.environments.tasks.families.computer_task import ComputerTask, draw_of_split
from openclaw_rl.environments.tasks.families.one_file import ONE_FILE
from openclaw_rl.environments.tasks.families.terminal import TERMINAL
from openclaw_rl.shared.chat_client import ChatClient

COMPUTER = {**TERMINAL, **ONE_FILE}
FAMILIES = (*COMPUTER, "sums", "calls")
CONCURRENCY = 16
MAX_STEPS = 10
LARGEST = 100_000


class Rooms:
    """The tasks of one family at a computer, each in a sandbox of its own (a kind, without Harbor)."""

    def __init__(self, family: str) -> None:
        self._family = family

    def tasks(self, split: Split, seed: int) -> Iterator[Task]:
        """Tasks without end."""
        random, number = Random(f"{self._family} {split} {seed}"), 0
        while True:
            task = draw_of_split(COMPUTER[self._family], random, split)
            yield Task(id=f"{self._family}/{number}", prompt=task.request, data=msgspec.to_builtins(task))
            number += 1

    def environment(self) -> Room:
        """The room of one attempt."""
        return Room()


class Room:
    """A sandbox with the files of a task."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._sandbox: Sandbox | None = None

    async def reset(self, task: Task, seed: int) -> Observation:
        self._task = msgspec.convert(task.data, ComputerTask)
        self._folder = Path(tempfile.mkdtemp(prefix="openclaw-rl-room-"))
        for path, text in self._task.files.items():
            (self._folder / path).parent.mkdir(exist_ok=True)
            (self._folder / path).write_text(text)
        sandbox = self._sandbox = await Sandbox.start(self._folder)
        self._computer = Computer(lambda command, seconds: sandbox.run(command, seconds=seconds))
        return await self._computer.reset(task, seed)

    async def tools(self) -> list[dict[str, Any]]:
        return await self._computer.tools()

    async def call(self, name: str, arguments: dict[str, Any]) -> Observation:
        return await self._computer.call(name, arguments)

    async def evaluate(self, answer: str) -> Verdict:
        assert self._folder is not None
        task = self._task
        left = {path: read_file(self._folder, path, LARGEST) for path in {*task.files, *task.wanted, *task.gone}}
        texts = {path: text.decode(errors="replace") for path, text in left.items() if text is not None}
        mistake = task.mistake(texts)
        return Verdict(reward=float(not mistake), detail={"mistake": mistake})

    async def close(self) -> None:
        if self._sandbox is not None:
            await self._sandbox.close()
        if self._folder is not None:
            remove_folder(self._folder)


async def start_rates(
    policy: Path, families: Sequence[str], *, tasks: int, seed: int = 0, out: Path | None = None
) -> dict[str, dict[str, float]]:
    """The share of solved tasks of each family, with its interval."""
    found = {}
    with tempfile.TemporaryDirectory() as temporary:
        log_path = (out or Path(temporary)) / "attempts.jsonl"
        log_path.parent.mkdir(parents=True, exist_ok=True)
        settings: dict[str, str | int | float | bool] = {"model": str(policy.resolve()), "train": False}
        async with lab(settings) as service, ChatClient(service.url, service.key, timeout=600.0) as client:
            with AttemptLog(log_path, "start", {}) as log:
                for family in families:
                    kind = Rooms(family) if family in COMPUTER else kinds.create_kind(family, kinds.KindOptions())
                    try:
                        plan = RunPlan(group=1, concurrency=CONCURRENCY, train=False, phase=family)
                        harness = kinds.harness_of(kind, seed=seed, max_steps=MAX_STEPS)
                        drawn = kinds.take_tasks(kind, "held-out", seed, tasks)
                        lines = await AttemptRunner(client, harness, log, plan).run(drawn)
                    finally:
                        await kinds.close_kind(kind)
                    found[family] = share([(line.reward or 0.0) >= PASSED for line in lines])
                    print(f"{family}: {found[family]}", file=sys.stderr, flush=True)
    return found


def main() -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    parser = argparse.ArgumentParser(description="Measures how often a policy folder solves tasks before training.")
    parser.add_argument("--policy", type=Path, default=POLICY)
    parser.add_argument("--tasks", type=int, default=100, help="tasks of each family")
    parser.add_argument("--only", default=",".join(FAMILIES), help="families (default: all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="folder for attempts.jsonl")
    chosen = parser.parse_args()
    wanted = [family for family in FAMILIES if family in chosen.only.split(",")]
    found = asyncio.run(start_rates(chosen.policy, wanted, tasks=chosen.tasks, seed=chosen.seed, out=chosen.out))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
