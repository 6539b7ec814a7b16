"""Measure how training affects running chats: eight clients stream, first with training paused, then during training.

    python -m bench.serve_while_training [--url URL --key KEY] [--set NAME=VALUE …] [--json] [--clients 8]
        [--pause 0] [--seconds 40] [--publishes 4]

The clients are simulated students, so both phases have the same load and every complaint is training data. The second
phase trains on the conversations of the first and lasts until `--publishes` versions are published and `--seconds` have
passed. Counted: requests, refused (no answer or an error status), cut (a stream without its proper end), answers
sampled by more than one version, and the gaps between the chunks of each stream. Nothing is retried. Of a service of
its own it scores some answers again under the version that each names (`bench.rescore`), and under the one before, to
see that the two can be distinguished.

The exit code is 1 if a request was refused or cut, an answer is of more than one version, or fewer versions were
published.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any

from bench.checks import Threshold, as_json, verdict
from bench.program import chosen_settings, log, milliseconds, parser, report, run, service
from bench.rescore import rescore
from openclaw_rl.evaluation.conversation import ANSWER_TOKENS
from openclaw_rl.evaluation.personas import Student
from openclaw_rl.evaluation.problems import stream
from openclaw_rl.shared.chat_client import ChatClient, ChatError, CutOff, Message
from openclaw_rl.shared.gather import gather
from openclaw_rl.shared.settings.named_models import TINY, model_path

LONGEST_PHASE = 240.0
SECONDS_A_VERSION = 20.0
"""A phase that waits for many versions may be longer."""
RESCORED = 400
"""Answers that are scored again."""


@dataclass
class Phase:
    """Measurements of one phase. `gaps` between chunks and time to the `first` one are in seconds."""

    name: str
    requests: int = 0
    refused: list[str] = field(default_factory=list)
    cut: list[str] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    turns: list[str] = field(default_factory=list)
    seconds: float = 0.0


async def ask(client: ChatClient, messages: list[Message], phase: Phase) -> str | None:
    """Stream one answer and record its gaps; `None` if it was refused or cut."""
    phase.requests += 1
    begun = time.perf_counter()
    times: list[float] = []
    text: list[str] = []
    turn = ""
    try:
        async for delta in client.stream(messages, max_tokens=ANSWER_TOKENS):
            turn = delta.headers.get("x-openclaw-rl-turn", "")
            if delta.text:
                times.append(delta.time)
                text.append(delta.text)
    except CutOff as error:
        phase.cut.append(str(error))
        return None
    except ChatError as error:
        phase.refused.append(str(error))
        return None
    phase.turns.append(turn)
    if times:
        phase.first.append(times[0] - begun)
    phase.gaps += [later - earlier for earlier, later in pairwise(times)]
    return "".join(text)


async def chatter(client: ChatClient, number: int, phase: Phase, over: asyncio.Event, pause: float) -> None:
    """Let one student ask and react, one conversation after another, until the phase is over; each message takes
    `pause` seconds to be written, more or less.
    """
    random = Random(number)
    student = Student(number)
    for problem in stream("train", number):
        if over.is_set():
            return
        await asyncio.sleep(random.uniform(0.5, 1.5) * pause)
        messages: list[Message] = [{"role": "user", "content": student.ask(problem)}]
        reply = await ask(client, messages, phase)
        if reply is None or over.is_set():
            continue
        await asyncio.sleep(random.uniform(0.5, 1.5) * pause)
        reaction = student.react(reply)
        messages += [{"role": "assistant", "content": reply}, {"role": "user", "content": reaction.text}]
        await ask(client, messages, phase)


async def published(client: ChatClient) -> int:
    """Number of versions that are or were live."""
    versions = (await client.get("/rl/versions"))["versions"]
    return sum(version["state"] in ("live", "retired") for version in versions)


async def hold(client: ChatClient, phase: Phase, *, clients: int, seconds: float, publishes: int, pause: float) -> int:
    """Let the students chat for `seconds` and until `publishes` versions are published; returns how many were."""
    over = asyncio.Event()
    earlier = await published(client)
    begun = time.monotonic()

    async def watch() -> None:
        passed, count = 0.0, 0
        while passed < max(LONGEST_PHASE, SECONDS_A_VERSION * publishes) and (passed < seconds or count < publishes):
            await asyncio.sleep(0.5)
            passed = time.monotonic() - begun
            count = await published(client) - earlier
        over.set()

    first = 1000 * (1 + (phase.name == "training"))
    await gather(watch(), *(chatter(client, first + number, phase, over, pause) for number in range(clients)))
    phase.seconds = time.monotonic() - begun
    return await published(client) - earlier


async def mixed(client: ChatClient, turns: list[str]) -> int:
    """Number of turns sampled by more than one version."""
    gate = asyncio.Semaphore(4)

    async def spans(turn: str) -> int:
        async with gate:
            explained: dict[str, Any] = await client.get(f"/rl/turns/{turn}")
            return len(explained["turn"]["versions"])

    return sum(count > 1 for count in await asyncio.gather(*map(spans, turns)))


async def measure(options: argparse.Namespace) -> int:
    """Run both phases and report them; returns the exit code."""
    idle, training = Phase("idle"), Phase("training")
    load = {"clients": options.clients, "pause": options.pause}
    own = {"keep_checkpoints": str(options.publishes + 8)}  # so that all answers can be scored again
    async with service(options, own) as target, ChatClient(target.url, target.key, patience=0, timeout=180.0) as client:
        await client.post("/rl/pause")
        # Imports, caches and compilation are not part of the measurement.
        await hold(client, Phase("warm-up"), seconds=3, publishes=0, **load)
        log.print(f"{options.clients} clients stream, training paused …")
        await hold(client, idle, seconds=options.seconds, publishes=0, **load)
        await client.post("/rl/resume")
        log.print(f"{options.clients} clients stream while it trains …")
        publishes = await hold(client, training, seconds=options.seconds, publishes=options.publishes, **load)
        if publishes < options.publishes:
            log.print(await client.get("/rl/status"))
        turns = idle.turns + training.turns
        mixed_version = await mixed(client, turns)
        again = None
        if target.data is not None:
            log.print("scoring answers again …")
            some = turns[:: max(1, len(turns) // RESCORED)]
            base = model_path(chosen_settings(options.set).get("model", TINY.name))
            again = await asyncio.to_thread(rescore, target.data, base, some)
    phases = (idle, training)
    for failure in [failure for phase in phases for failure in phase.refused + phase.cut][:10]:
        log.print(failure, markup=False)
    figures = {
        f"{name}_p{share:g}_ms": {
            phase.name: milliseconds(getattr(phase, values), share / 100) if getattr(phase, values) else None
            for phase in phases
        }
        for name, values in (("gap", "gaps"), ("first_token", "first"))
        for share in (50, 99)
    }
    result: dict[str, Any] = {
        "requests": sum(phase.requests for phase in phases),
        "refused": sum(len(phase.refused) for phase in phases),
        "cut": sum(len(phase.cut) for phase in phases),
        "mixed_version": mixed_version,
        "rescored": again._asdict() if again is not None else None,
        "publishes": publishes,
        **load,
        **figures,
        "seconds": {phase.name: round(phase.seconds, 1) for phase in phases},
    }
    rows = [
        [phase.name, *map(str, (phase.requests, len(phase.refused), len(phase.cut)))]
        + [f"{values[phase.name]} ms" for values in figures.values()]
        for phase in phases
    ]
    columns = ["phase", "requests", "refused", "cut", "gap p50", "gap p99", "first token p50", "first token p99"]
    title = f"{options.clients} clients; {publishes} versions published; {mixed_version} answers of mixed versions"
    checks = [
        Threshold("requests that were refused", result["refused"], 0),
        Threshold("requests that were cut", result["cut"], 0),
        Threshold("answers of more than one version", mixed_version + (again.off if again is not None else 0), 0),
        Threshold(f"versions that are missing of {options.publishes}", max(0, options.publishes - publishes), 0),
    ]
    result["checks"] = as_json(checks)
    report(options, title, columns, rows, result)
    return verdict(checks)


def main() -> int:
    options = parser(__doc__, needs_service=True)
    options.add_argument("--clients", type=int, default=8, help="concurrent clients")
    options.add_argument("--pause", type=float, default=0.0, help="seconds that a client takes to write a message")
    options.add_argument("--seconds", type=float, default=40.0, help="minimum length of each phase")
    options.add_argument("--publishes", type=int, default=4, help="versions to wait for in the second phase")
    return run(options, measure)


if __name__ == "__main__":
    sys.exit(main())
