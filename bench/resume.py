"""Kill the learner at every step, and compare its weights with those of a run that is not killed.

    python -m bench.resume [--steps 20] [--json] [--save FILE]

The same recorded and judged turns are learned from twice, by the tiny policy's own trainer, learner and engine. The
first run is left alone. In the second, `kill -9` ends the learner once in every step, in turn: while the trainer works,
when the checkpoint is written, before the version is committed, before it is published, and before old checkpoints are
removed. Every checkpoint must be the same, bit for bit: served weights, the trainer's own, and the optimizer's state.
The engine computes one answer at a time: answers that are computed together with others are rounded otherwise.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import multiprocessing
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import torch

from bench.program import log, parser, report, run
from openclaw_rl.evaluation.problems import take
from openclaw_rl.learner import main as learner
from openclaw_rl.learner import versions
from openclaw_rl.learner.judge.create import create as create_judge
from openclaw_rl.learner.judge.loop import JudgeLoop
from openclaw_rl.learner.progress import Progress
from openclaw_rl.shared.backends import create_engine
from openclaw_rl.shared.child_process import end_child, start_child
from openclaw_rl.shared.engine.protocol import Engine, Priority
from openclaw_rl.shared.errors import EngineError, OpenClawRLError
from openclaw_rl.shared.journal import AsyncJournal, Journal
from openclaw_rl.shared.messages.normalize import ChatInput
from openclaw_rl.shared.records import NextState, PolicyVersion, Sampling, Timings, Turn
from openclaw_rl.shared.rendering.prompter import Prompter
from openclaw_rl.shared.settings.named_models import TINY
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.shared.settings.sources import load
from openclaw_rl.trainer_local.embedded.launch import command
from openclaw_rl.trainer_local.transformers_trainer import TransformersTrainer

BATCH = 2
TURNS = 4
"""Turns for each step: some are held back for the guard, and some teach nothing."""
PLACES = ("step", "save", "commit", "publish", "prune")
WORDS = ("no bold please", "too long", "use plain sentences", "stop using lists", "write like a friend would")
IDLE = 300
"""Looks without enough samples, five a second, until a run has failed."""
PATIENCE = 600.0
"""Maximum seconds of a step, and of the start of an engine."""


_LIVES = multiprocessing.get_context("forkserver")
"""Each process begins with torch imported, and with no other thread."""
_LIVES.set_forkserver_preload(["openclaw_rl.learner.main", "openclaw_rl.trainer_local.transformers_trainer"])


class ResumeFailed(OpenClawRLError):
    """The learner ended otherwise than it should have."""


def settings_of(data: Path, port: int) -> dict[str, str]:
    """Settings of a run, as variables: few rollouts, batches that do not grow with what waits, and a rate at which the
    last turn still teaches something.
    """
    chosen = {
        "data": data, "model": TINY.name, "device": "cpu", "engine_url": f"http://127.0.0.1:{port}",
        "batch_size": BATCH, "learning_rate": 2e-5, "rehearsals": 2, "anchors": 1, "rehearsal_max_tokens": 32,
        "max_version_lag": 1000, "keep_checkpoints": 1000, "audit_fraction": 0,
    }  # fmt: skip
    return {f"OPENCLAW_RL_{name.upper()}": str(value) for name, value in chosen.items()}


def free_port() -> int:
    """A port on loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def serving(data: Path) -> AsyncIterator[dict[str, str]]:
    """Settings of a run, as variables, with an engine of its own that runs for the block. Raises `ResumeFailed`."""
    port = free_port()
    environment = settings_of(data, port)
    settings = load({}, environ=environment)[0]
    arguments = list(command(settings))
    arguments[arguments.index("--port") + 1] = str(port)
    process = await start_child(*arguments, "--max-batch", "1", "--cache-megabytes", "0", stdout=2)
    engine = create_engine(settings)
    deadline = time.monotonic() + PATIENCE
    try:
        while not await _answers(engine):
            if process.returncode is not None or time.monotonic() > deadline:
                raise ResumeFailed(f"the engine did not start (status {process.returncode})")
            await asyncio.sleep(0.2)
        yield environment
    finally:
        await engine.close()
        await end_child(process, 5.0)


async def _answers(engine: Engine) -> bool:
    try:
        await engine.info()
    except EngineError:
        return False
    return True


async def record(settings: Settings, turns: int) -> None:
    """Answer problems by the policy, complain about each answer, and have all of them judged."""
    journal = AsyncJournal(settings.serve.journal_path)
    engine = create_engine(settings)
    prompter = Prompter.from_settings(settings)
    judge = create_judge(settings, engine)
    try:
        for number, problem in enumerate(take("train", 0, turns)):
            turn = await _answered(engine, prompter, number, problem.text)
            await journal.record_turn(turn)
            await journal.settle(NextState(turn_id=turn.turn_id, role="user", text=WORDS[number % len(WORDS)]))
        judging = asyncio.create_task(JudgeLoop(journal, judge, settings, Progress(), set()).run())
        while await journal.unjudged(1):
            await asyncio.sleep(0.1)
        judging.cancel()
        await asyncio.gather(judging, return_exceptions=True)
    finally:
        await judge.close()
        await engine.close()
        await journal.close()


async def _answered(engine: Engine, prompter: Prompter, number: int, question: str) -> Turn:
    messages = [{"role": "user", "content": question}]
    prompt = prompter.render(ChatInput(messages=messages, tools=[], tools_json=b"")).ids()
    sampling = Sampling(temperature=1.0, max_tokens=48, seed=number)
    ids: list[int] = []
    logprobs: list[float] = []
    spans: Any = ()
    async for tokens in engine.generate(prompt, sampling, priority=Priority.CHAT):
        ids += tokens.ids
        logprobs += tokens.logprobs
        spans = tokens.versions or spans
    time = 1000.0 + number
    return Turn(
        turn_id=f"turn_{number:032x}", session_id=f"session-{number}", episode=0, parent_turn_id=None, kind="main",
        kind_reason="bench", messages=messages, answer={"role": "assistant", "content": prompter.tokenizer.decode(ids)},
        prompt_ids=prompt, response_ids=ids, logprobs=logprobs, sampling=sampling, versions=spans,
        finish_reason="stop", status="complete", timings=Timings(time, time, time),
    )  # fmt: skip


def die(*_: Any) -> None:
    """End this process as a crash does."""
    os.kill(os.getpid(), signal.SIGKILL)


def die_at(place: str, number: int, journal_path: str) -> None:
    """Let this process die at a place of the step that makes version `number`."""

    def reached() -> bool:
        journal = Journal(journal_path)
        try:
            return journal.next_version_number() - (place in ("publish", "prune")) == number
        finally:
            journal.close()

    owner, name, act = {
        "step": (TransformersTrainer, "step", _soon(number)),
        "save": (versions, "seal", die),
        "commit": (versions.Versions, "accept", die),
        "publish": (versions.Versions, "publish", die),
        "prune": (versions.Versions, "_prune", die),
    }[place]
    original = getattr(owner, name)

    def dying(*arguments: Any, **named: Any) -> Any:
        if reached():
            act()
        return original(*arguments, **named)

    setattr(owner, name, dying)


def _soon(number: int) -> Callable[[], None]:
    seconds = Random(number).uniform(0.01, 0.3)
    return lambda: threading.Timer(seconds, die).start()


def life(environment: Mapping[str, str], steps: int, place: str, number: int) -> None:
    """Be the learner until `steps` versions were made, or until death."""
    settings = load({}, environ=environment)[0]
    if place:
        die_at(place, number, settings.serve.journal_path)
    asyncio.run(_learn(settings, steps))


async def _learn(settings: Settings, steps: int) -> None:
    stop = asyncio.Event()
    watch = AsyncJournal(settings.serve.journal_path)
    async with asyncio.TaskGroup() as group:
        group.create_task(learner.run(settings, stop))
        idle = 0
        while not _done(await watch.versions(), steps):
            idle = 0 if await watch.ready_count() >= BATCH else idle + 1
            if idle > IDLE:
                raise ResumeFailed(f"the turns taught no more than {len(await watch.versions()) - 1} steps")
            await asyncio.sleep(0.2)
        stop.set()
    await watch.close()


def _done(made: list[PolicyVersion], steps: int) -> bool:
    return len(made) > steps and made[-1].state != "candidate"


async def live(environment: Mapping[str, str], steps: int, place: str = "", number: int = 0) -> None:
    """One life of the learner, in a process of its own. Raises `ResumeFailed` unless it ends as it should."""
    process = _LIVES.Process(target=life, args=(environment, steps, place, number), daemon=True)
    process.start()
    deadline = time.monotonic() + PATIENCE * (1 if place else steps)
    while process.is_alive() and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
    if process.is_alive():
        process.kill()
        raise ResumeFailed(f"the learner did not make {number or steps} steps within {PATIENCE:.0f} s each")
    wanted = -signal.SIGKILL if place else 0
    if process.exitcode != wanted:
        raise ResumeFailed(f"the learner ended with {process.exitcode} instead of {wanted}, at {place or 'the end'}")


def parts(data: Path, number: int) -> dict[str, str]:
    """The digests of all parts of a version's checkpoint: files of weights, and each value of the trainer's state (of
    two equal states the files may differ, by the order in which they name what is used twice).
    """
    folder = data / "checkpoints" / str(number)
    found: dict[str, str] = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = str(path.relative_to(folder))
        if path.suffix == ".pt":
            state = torch.load(path, weights_only=True, map_location="cpu")
            found |= {f"{name}/{key}": one for key, one in values(state).items()}
        elif name != "meta.json":
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def values(state: Any, name: str = "") -> dict[str, str]:
    """The values in a nested state, by their places; tensors by their bits."""
    if isinstance(state, Mapping):
        pairs: Any = state.items()
    elif isinstance(state, list | tuple):
        pairs = enumerate(state)
    elif isinstance(state, torch.Tensor):
        bits = state.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        return {name: f"{state.dtype} {tuple(state.shape)} {hashlib.sha256(bits).hexdigest()}"}
    else:
        return {name: repr(state)}
    return {place: one for key, value in pairs for place, one in values(value, f"{name}.{key}").items()}


def differences(one: Path, other: Path, steps: int) -> list[str]:
    """The parts that are not the same in both runs."""
    found = []
    for number in range(1, steps + 1):
        ours, theirs = parts(one, number), parts(other, number)
        found += [f"{number}/{name}" for name in sorted({*ours, *theirs}) if ours.get(name) != theirs.get(name)]
    return found


def lineage(data: Path) -> list[tuple[int, str, tuple[str, ...]]]:
    """The versions of a run, with what became of them and the samples that made them."""
    journal = Journal(data / "journal.db")
    try:
        return [(one.number, one.state, tuple(one.sample_ids)) for one in journal.versions()]
    finally:
        journal.close()


async def _whole(data: Path, steps: int) -> float:
    """The seconds of a run that is left alone."""
    began = time.perf_counter()
    async with serving(data) as environment:
        await live(environment, steps)
    return time.perf_counter() - began


async def _killed(data: Path, steps: int, places: Counter[str]) -> float:
    """The seconds of a run that is killed once in every step, which is counted in `places`."""
    began = time.perf_counter()
    async with serving(data) as environment:
        for number in range(1, steps + 1):
            place = PLACES[(number - 1) % len(PLACES)]
            await live(environment, steps, place, number)
            places[place] += 1
            log.print(f"step {number} of {steps}: killed at {place}")
        await live(environment, steps)
    return time.perf_counter() - began


async def measure(options: argparse.Namespace) -> int:
    """Run both, compare them; returns 1 if they differ."""
    steps, places = options.steps, Counter[str]()
    with tempfile.TemporaryDirectory(prefix="openclaw-rl-resume-") as folder:
        runs = [Path(folder) / name for name in ("whole", "killed")]
        async with serving(runs[0]) as environment:
            await record(load({}, environ=environment)[0], TURNS * steps)
        shutil.copytree(runs[0], runs[1])
        seconds = await asyncio.gather(_whole(runs[0], steps), _killed(runs[1], steps, places))
        differing = differences(runs[0], runs[1], steps)
        lines = [lineage(data) for data in runs]
        compared = sum(len(parts(runs[0], number)) for number in range(1, steps + 1))
    same = lines[0] == lines[1] and not differing
    result = {
        "steps": steps,
        "kills": places.total(),
        "places": dict(places),
        "compared": compared,
        "different": len(differing),
        "first_different": differing[0] if differing else "",
        "same_versions": lines[0] == lines[1],
        "rejected": sum(state == "rejected" for _, state, _ in lines[0]),
        "identical": same,
        "seconds": [round(one, 1) for one in seconds],
    }
    rows = [[name, str(value)] for name, value in result.items()]
    report(options, f"{steps} steps, and the same killed once in each", ["figure", "value"], rows, result)
    return int(not same or compared == 0)


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--steps", type=int, default=20, help="steps of each run")
    return run(options, measure)


if __name__ == "__main__":
    sys.exit(main())
