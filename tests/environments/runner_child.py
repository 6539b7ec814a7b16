"""A runner in a process of its own: `python -m tests.environments.runner_child URL KEY FOLDER GROUP ATTEMPTS`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from openclaw_rl.environments.attempt_log import AttemptLog
from openclaw_rl.environments.kinds import KindOptions, create_kind, harness_of, take_tasks
from openclaw_rl.environments.runner import AttemptRunner, RunPlan
from openclaw_rl.shared.chat_client import ChatClient


async def main(url: str, key: str, folder: str, group: int, attempts: int) -> None:
    """Attempt the tasks of `parity.py`; continue the run of the folder, if there is one."""
    kind = create_kind(str(Path(__file__).with_name("parity.py")), KindOptions())
    tasks = take_tasks(kind, "train", 0, attempts // group)
    harness = harness_of(kind, seed=0, max_steps=2)
    async with ChatClient(url, key) as client:
        with AttemptLog(Path(folder) / "attempts.jsonl", "killed", {}, resume=True) as log:
            await AttemptRunner(client, harness, log, RunPlan(group=group, concurrency=2)).run(tasks)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4], *map(int, sys.argv[4:])))
