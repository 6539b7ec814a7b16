"""Count the acknowledged writes that `kill -9` loses. A process writes turns, feedback, samples and versions into a
journal as fast as it can and says what was acknowledged; it is killed at a random moment; then the journal is searched
for everything that it had said. Again and again, on the same journal.

    python -m bench.durability [--kills 10] [--clients 8] [--json]

Counted, by kind: acknowledged, lost (not in the journal), changed (turns that read back differently) and twice (samples
in more than one version). Beside it, how many turns and writes a second were acknowledged, each one being on disk by
then; a journal on a tmpfs says nothing about the speed of a disk, so choose the place with `--folder`.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
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

from bench.service import log, report
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
LONGEST_ROUND = 3.0
"""Seconds a writer lives at most before it is killed."""


def fingerprint(turn: Turn) -> str:
    """A digest of everything that a turn must give back exactly."""
    content = [turn.session_id, turn.parent_turn_id, list(turn.messages), turn.answer]
    numbers = array("I", turn.prompt_ids).tobytes() + array("I", turn.response_ids).tobytes()
    numbers += array("f", turn.logprobs).tobytes()
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode() + numbers).hexdigest()


class Writer:
    """The process that is killed: clients that talk, and a learner that makes a version of every eight samples."""

    def __init__(self, journal: AsyncJournal, seed: int) -> None:
        self._journal = journal
        self._random = random.Random(seed)
        self._ready: list[str] = []
        self._learning = asyncio.Lock()

    async def client(self) -> None:
        """One conversation without end: each answer is settled by the next message and gets a thumb."""
        session, parent = new_id("ses"), None
        history: list[dict[str, Any]] = [{"role": "system", "content": "Answer briefly. " * 100}]
        ids = [self._random.randrange(150_000) for _ in range(400)]
        while True:
            history.append({"role": "user", "content": f"question {len(history)} {self._random.random()}"})
            ids += [self._random.randrange(150_000) for _ in range(20)]
            turn = self._turn(session, parent, history, ids)
            await self._journal.record_turn(turn)
            say("turn", turn.turn_id, fingerprint(turn))
            await self._journal.settle(NextState(turn_id=turn.turn_id, role="user", text="no, shorter"))
            say("next_state", turn.turn_id)
            feedback = Feedback(turn_id=turn.turn_id, session_id=session, score=-1.0)
            await self._journal.add_feedback(feedback)
            say("feedback", f"{turn.turn_id} {feedback.feedback_id}")
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
        say("sample", sample.sample_id)
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
            say("version", str(number))

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


def say(kind: str, name: str, detail: str = "") -> None:
    """Tell the parent what was acknowledged; a pipe keeps what was written to it when the writer is killed."""
    os.write(1, f"{kind}\t{name}\t{detail}\n".encode())


async def write(path: str, clients: int, seed: int) -> None:
    """Write until killed."""
    journal = AsyncJournal.open(path)
    writer = Writer(journal, seed)
    await asyncio.gather(*(writer.client() for _ in range(clients)))


@dataclass
class Findings:
    """Acknowledged writes and their fate, by kind; `seconds` of writing."""

    acknowledged: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    changed: int = 0
    twice: int = 0
    seconds: float = 0.0


def kill_one(path: Path, clients: int, seed: int) -> tuple[list[list[str]], float]:
    """Let a writer write, kill it at a random moment, and return what it had acknowledged and how long it wrote."""
    command = [sys.executable, "-m", "bench.durability", "--writer", str(path)]
    command += ["--clients", str(clients), "--seed", str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        begun = time.perf_counter()
        # It is read while it writes: a full pipe would hold it up.
        rest = bytearray()
        deadline = begun + random.Random(seed).uniform(0.05, LONGEST_ROUND)
        while (left := deadline - time.perf_counter()) > 0 and process.poll() is None:
            if select.select([process.stdout], [], [], left)[0]:
                rest += process.stdout.read1()
        process.send_signal(signal.SIGKILL)
        seconds = time.perf_counter() - begun
        rest += process.stdout.read()
    lines = (first + rest).decode().split("\n")
    # A line without its end was cut by the kill.
    return [line.split("\t") for line in lines[:-1]], seconds


def check(path: Path, acknowledged: list[list[str]], findings: Findings) -> None:
    """Search the journal for everything that was acknowledged."""
    journal = Journal.open(path)
    held = Counter(sample for version in journal.versions() for sample in version.sample_ids)
    known = set(held) | {sample.sample_id for sample in journal.ready_samples(10**9)}
    findings.twice += sum(count > 1 for count in held.values())
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


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Kill, check, repeat; the result as it is printed."""
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
    return {
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


def main() -> None:
    """The command line."""
    options = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else "")
    options.add_argument("--kills", type=int, default=10, help="how often the writer is killed")
    options.add_argument("--clients", type=int, default=8, help="conversations that it writes at the same time")
    options.add_argument("--folder", help="where the journal is put (default: the system's temporary folder)")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--json", action="store_true", help="print one JSON line on stdout, all else on stderr")
    options.add_argument("--writer", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.writer:
        asyncio.run(write(chosen.writer, chosen.clients, chosen.seed))
        return
    result = run(chosen)
    rows = [[kind, str(result["acknowledged"][kind]), str(result["lost"][kind])] for kind in KINDS]
    rows.append(["turns that read back differently", "", str(result["changed"])])
    rows.append(["samples in more than one version", "", str(result["twice"])])
    title = (
        f"{result['kills']} times kill -9, {result['turns_per_s']} turns and {result['writes_per_s']} writes a second"
    )
    report(chosen, title, ["record", "acknowledged", "lost"], rows, result)
    if any(result["lost"].values()) or result["changed"] or result["twice"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
