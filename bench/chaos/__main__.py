"""Mistreat a whole service under live traffic, and let an independent checker read what is left.

    python -m bench.chaos [--kills 40] [--no-trials] [--json]

Clients stream answers, complain and vote. Meanwhile processes are killed at random (`kill -9` of the proxy, the engine,
the learner, all three, or the supervisor), then stopped, and the disk, the journal, the clock and the judge are taken
away. In the end the journal and the checkpoints are compared with what the clients know (`bench.reliability_check`). As
root the data folder is on a tmpfs, which can be filled and made read-only: a killed process loses nothing there that it
would keep on a disk. The exit code is 1 if anything was lost, counted twice, or does not fit.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.chaos import trials
from bench.chaos.clients import Traffic
from bench.chaos.victim import SETTINGS, Victim
from bench.program import log, parser, report, run
from bench.reliability_check import check, figures, read_history
from openclaw_rl.evaluation.arm import settled
from openclaw_rl.shared.chat_client import ChatClient

CHOICES = {"proxy": 10, "engine": 10, "learner": 12, "all": 5, "supervisor": 3}
"""How often each is killed, in proportion."""
PAUSE_SECONDS = (1.0, 8.0)
QUIET_AFTER = 10
"""Kills after which the service has time for a step: while kills follow one another, none is finished."""
QUIET_SECONDS = 15.0


async def measure(options: argparse.Namespace) -> int:
    """Run everything in a temporary folder."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="openclaw-rl-chaos-") as name, _disk(Path(name) / "data") as disk:
        folder = Path(name)
        history = folder / "history.jsonl"
        history.touch()
        rows: list[trials.FaultTrial] = []
        async with Victim(folder, folder / "data") as victim:
            traffic = Traffic(victim.url, victim.key, history, options.seed)
            async with traffic.running():
                killed = await _kill(victim, traffic, options.kills, random.Random(options.seed))
                if options.trials:
                    rows = await trials.run_all(victim, traffic, disk)
            async with ChatClient(victim.url, victim.key) as client:
                learned = await settled(client, batch=SETTINGS["batch_size"], patience=options.settle)
        found, counts = check(folder / "data", read_history(history)), figures(folder / "data")
        if options.trials:
            rows.append(await trials.read_only(victim, disk))
    faults = [f"{kind}: {fault}" for kind, faults in found.items() for fault in faults]
    for fault in faults:
        log.print(f"FAULT: {fault}")
    result: dict[str, Any] = {
        "kills": options.kills,
        "turns": traffic.turns,
        "lost_acknowledged": len(found["acknowledged"]),
        "consumed_twice": len(found["twice"]),
        "lost_samples": len(found["lost"]),
        "dropped_share": round(counts["dropped"] / max(1, counts["settled"]), 4),
        "lineage_mismatch": len(found["lineage"]) + len(found["files"]),
        "journal": "; ".join(found["journal"]) or "ok",
    }
    table = [[name, str(value)] for name, value in result.items()]
    result |= {
        "killed": dict(killed),
        "failed_requests": traffic.failed,
        "settled": counts["settled"],
        "all_learned": learned,
        "versions": counts["versions"],
        "seconds": round(time.monotonic() - begun),
        "trials": rows,
        "faults": faults,
    }
    table += [[row["tried"], f"{row['seen']}{'' if row['kept'] in (True, None) else ' (MISSED)'}"] for row in rows]
    report(options, f"{options.kills} kills", ["tried", "seen"], table, result)
    return int(bool(faults) or any(row["kept"] is False for row in rows))


async def _kill(victim: Victim, traffic: Traffic, kills: int, chance: random.Random) -> Counter[str]:
    killed: Counter[str] = Counter()
    for number in range(1, kills + 1):
        await asyncio.sleep(chance.uniform(*PAUSE_SECONDS))
        role = chance.choices(list(CHOICES), list(CHOICES.values()))[0]
        await victim.kill(role)
        killed[role] += 1
        log.print(f"kill {number} of {kills}: {role}; {traffic.turns} turns acknowledged")
        if number % QUIET_AFTER == 0 or number == kills:
            await traffic.probe(trials.HEALED_SECONDS)
        if number % QUIET_AFTER == 0:
            await asyncio.sleep(QUIET_SECONDS)
    return killed


@contextmanager
def _disk(folder: Path) -> Iterator[bool]:
    """Make the folder, on a tmpfs of its own if this process may mount one; yields whether it is one."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={trials.DISK_MB}m", "tmpfs", str(folder)]
    mounted = os.geteuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], check=True)


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--kills", type=int, default=40, help="number of kills")
    options.add_argument("--settle", type=float, default=1800.0, help="seconds in which all must be learned afterwards")
    options.add_argument("--no-trials", dest="trials", action="store_false", help="only kills")
    options.add_argument("--seed", type=int, default=0)
    return run(options, measure)


if __name__ == "__main__":
    sys.exit(main())
