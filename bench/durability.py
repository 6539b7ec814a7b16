"""Count the acknowledged writes that `kill -9` loses.

    python -m bench.durability [--kills 10] [--clients 8] [--json]

A process writes turns, feedback, samples and versions into a journal as fast as it can and reports each acknowledged
write. It is killed at a random moment, and the journal is searched for every reported write; repeatedly, on the same
journal. Counted by kind: acknowledged, lost (not in the journal), changed (turns that read back differently) and twice
(samples in more than one version). Also reported: acknowledged turns and writes a second. Each is on disk by then, so
choose the disk with `--folder`: a journal on a tmpfs says nothing about a disk.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import io
import json
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
from array import array
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.program import log, parser, report, run
from openclaw_rl.shared.journal import AsyncJournal, Journal
from openclaw_rl.shared.records import (
    Feedback,
    NextState,
    PolicyVersion,
    Sample,
    Sampling,
    Timings,
    Turn,
    VersionSpan,
    new_id,
    now,
)

KINDS = ("turn", "next_state", "feedback", "sample", "version")
BATCH = 8
MAX_ROUND = 3.0
"""Maximum seconds until a writer is killed."""


def fingerprint(turn: Turn) -> str:
    """A digest of everything that must read back unchanged."""
    content = [turn.session_id, turn.parent_turn_id, list(turn.messages), turn.answer]
    numbers = array("I", turn.prompt_ids).tobytes() + array("I", turn.response_ids).tobytes()
    numbers += array("f", turn.logprobs).tobytes()
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode() + numbers).hexdigest()


class TurnWriter:
    """The process to kill: chatting clients, and a learner that makes a version of every eight samples."""

    def __init__(self, journal: AsyncJournal, seed: int) -> None:
        self._journal = journal
        self._random = random.Random(seed)
        self._ready: list[str] = []
        self._learning = asyncio.Lock()

    async def client(self) -> None:
        """Write one endless conversation: each answer gets a next state and a thumb."""
        session, parent = new_id("ses"), None
        history: list[dict[str, Any]] = [{"role": "system", "content": "Answer briefly. " * 100}]
        ids = [self._random.randrange(150_000) for _ in range(400)]
        while True:
            history.append({"role": "user", "content": f"question {len(history)} {self._random.random()}"})
            ids += [self._random.randrange(150_000) for _ in range(20)]
            turn = self._turn(session, parent, history, ids)
            await self._journal.record_turn(turn)
            acknowledge("turn", turn.turn_id, fingerprint(turn))
            await self._journal.settle(NextState(turn_id=turn.turn_id, role="user", text="no, shorter"))
            acknowledge("next_state", turn.turn_id)
            feedback = Feedback(turn_id=turn.turn_id, session_id=session, score=-1.0)
            await self._journal.add_feedback(feedback)
            acknowledge("feedback", f"{turn.turn_id} {feedback.feedback_id}")
            await self._learn(turn)
            history.append(dict(turn.answer))
            ids += turn.response_ids
            parent = turn.turn_id

    async def _learn(self, turn: Turn) -> None:
        sample = Sample(
            sample_id=new_id("smp"),
            turn_id=turn.turn_id,
            policy=turn.policy,
            origin="turn",
            prompt_ids=turn.prompt_ids,
            response_ids=turn.response_ids,
            logprobs=turn.logprobs,
            versions=turn.versions,
            reward=-1.0,
        )
        await self._journal.add_sample(sample)
        acknowledge("sample", sample.sample_id)
        async with self._learning:
            ready = await self._journal.ready_samples(BATCH)
            if len(ready) < BATCH:
                return
            number = await self._journal.next_version_number()
            version = PolicyVersion(
                number=number,
                parent=number - 1 if number else None,
                state="live",
                checkpoint=f"checkpoints/{number}",
                sample_ids=[sample.sample_id for sample in ready],
            )
            await self._journal.commit_version(version)
            acknowledge("version", str(number))

    def _turn(self, session: str, parent: str | None, history: list[dict[str, Any]], ids: list[int]) -> Turn:
        length = self._random.randint(1, 60)
        return Turn(
            turn_id=new_id("turn"),
            session_id=session,
            episode=0,
            parent_turn_id=parent,
            kind="main",
            kind_reason="bench",
            messages=list(history),
            answer={"role": "assistant", "content": f"answer {self._random.random()}"},
            prompt_ids=array("I", ids),
            response_ids=array("I", [self._random.randrange(150_000) for _ in range(length)]),
            logprobs=array("f", [-self._random.random() for _ in range(length)]),
            sampling=Sampling(),
            versions=(VersionSpan(0, 0, length),),
            finish_reason="stop",
            status="complete",
            timings=Timings(arrived=now(), first_token=now(), finished=now()),
        )


def acknowledge(kind: str, name: str, detail: str = "") -> None:
    """Report an acknowledged write to the parent; the pipe keeps its content when the writer is killed."""
    os.write(1, f"{kind}\t{name}\t{detail}\n".encode())


async def write(path: str, clients: int, seed: int) -> None:
    """Write until killed."""
    journal = AsyncJournal(path)
    writer = TurnWriter(journal, seed)
    await asyncio.gather(*(writer.client() for _ in range(clients)))


@dataclass
class Findings:
    """Acknowledged and lost writes by kind; `seconds` of writing."""

    acknowledged: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    changed: int = 0
    twice: int = 0
    seconds: float = 0.0


def kill_one(path: Path, clients: int, seed: int) -> tuple[list[list[str]], float]:
    """Kill a writer at a random moment; returns its acknowledged writes and the seconds it wrote."""
    command = [sys.executable, "-m", "bench.durability", "--writer", str(path)]
    command += ["--clients", str(clients), "--seed", str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert isinstance(process.stdout, io.BufferedReader)
        first = process.stdout.readline()
        begun = time.perf_counter()
        # Read meanwhile: a full pipe would block the writer.
        rest = bytearray()
        deadline = begun + random.Random(seed).uniform(0.05, MAX_ROUND)
        while (left := deadline - time.perf_counter()) > 0 and process.poll() is None:
            if select.select([process.stdout], [], [], left)[0]:
                rest += process.stdout.read1()
        process.send_signal(signal.SIGKILL)
        seconds = time.perf_counter() - begun
        rest += process.stdout.read()
    lines = (first + rest).decode().split("\n")
    # The kill may have cut the last line.
    return [line.split("\t") for line in lines[:-1]], seconds


def check(path: Path, acknowledged: list[list[str]], findings: Findings) -> None:
    """Search the journal for every acknowledged write."""
    journal = Journal(path)
    uses = Counter(sample for version in journal.versions() for sample in version.sample_ids)
    known = set(uses) | {sample.sample_id for sample in journal.ready_samples(10**9)}
    findings.twice += sum(count > 1 for count in uses.values())
    for kind, name, detail in acknowledged:
        findings.acknowledged[kind] += 1
        if kind == "turn":
            turn = journal.turn(name)
            found = turn is not None
            findings.changed += turn is not None and fingerprint(turn) != detail
        elif kind == "next_state":
            found = journal.next_state(name) is not None
        elif kind == "feedback":
            turn_id, feedback_id = name.split()
            found = feedback_id in {feedback.feedback_id for feedback in journal.feedback_for(turn_id)}
        elif kind == "sample":
            found = name in known
        else:
            found = journal.version(int(name)) is not None
        findings.lost[kind] += not found
    journal.close()


def measure(options: argparse.Namespace) -> int:
    """Kill and check repeatedly; returns 1 if a write was lost, changed or doubled."""
    if options.writer:
        asyncio.run(write(options.writer, options.clients, options.seed))
        return 0
    findings = Findings()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder) / "journal.db"
        for number in range(options.kills):
            acknowledged, seconds = kill_one(path, options.clients, options.seed + number)
            findings.seconds += seconds
            check(path, acknowledged, findings)
            log.print(
                f"kill {number + 1} of {options.kills}: {len(acknowledged)} acknowledged, {findings.lost.total()} lost"
            )
        size = path.stat().st_size
    result: dict[str, Any] = {
        "kills": options.kills,
        "clients": options.clients,
        "acknowledged": {kind: findings.acknowledged[kind] for kind in KINDS},
        "lost": {kind: findings.lost[kind] for kind in KINDS},
        "changed": findings.changed,
        "twice": findings.twice,
        "turns_per_s": round(findings.acknowledged["turn"] / findings.seconds, 1),
        "writes_per_s": round(findings.acknowledged.total() / findings.seconds, 1),
        "bytes": size,
    }
    rows = [[kind, str(findings.acknowledged[kind]), str(findings.lost[kind])] for kind in KINDS]
    rows.append(["turns that read back differently", "", str(findings.changed)])
    rows.append(["samples in more than one version", "", str(findings.twice)])
    title = f"{options.kills} kills (-9), {result['turns_per_s']} turns and {result['writes_per_s']} writes a second"
    report(options, title, ["record", "acknowledged", "lost"], rows, result)
    return int(bool(findings.lost.total() or findings.changed or findings.twice))


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--kills", type=int, default=10, help="number of kills")
    options.add_argument("--clients", type=int, default=8, help="concurrent conversations of the writer")
    options.add_argument("--folder", help="folder of the journal (default: the system's temporary folder)")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--writer", help=argparse.SUPPRESS)
    return run(options, measure)


if __name__ == "__main__":
    sys.exit(main())
