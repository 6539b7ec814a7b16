"""Send tens of thousands of turns through the real application and watch its memory, its journal and its latency.

The proxy's application answers in this process, without sockets; the learner is a process of its own that judges and
learns all the time. Engine and trainer follow a script, for the question is what grows with the turns: the memory of
both processes (a line through the samples after `WARM_UP` of the turns: caches fill before), the journal, and the time
of a request at the end (its 99th percentile in the last tenth against that in the tenth after the warm-up).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import os
import signal
import sys
import tempfile
import time
import tracemalloc
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy
import psutil

from bench.program import log, milliseconds, parser, report, run
from bench.simulate.world import KEY, Faults, SimulatedEngine, SimulatedReply, answer, prompter
from openclaw_rl.learner import main as learner_main
from openclaw_rl.proxy.app import create_app
from openclaw_rl.proxy.service import ProxyService
from openclaw_rl.shared import files
from openclaw_rl.shared.checkpoints import SERVED
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.journal import AsyncJournal, sqlite
from openclaw_rl.shared.process import die_with_parent
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.shared.trainer import Checkpoint, Recipe, StepReport

WARM_UP = 0.4
"""Share of the turns before growth counts: the proxy remembers ten thousand turns."""
SAMPLES = 200
"""Samples of the memory in a run."""
SESSION_TURNS = 6
PAGE_CACHE_KB = 256
"""Size of SQLite's page caches here: those of the service fill to a bound for tens of thousands of turns, which is no
growth, but would hide it.
"""
MOST_WAITING = 400
"""Turns that may wait for the judge before the clients wait for it."""
TEXTS = (
    "How much is 7 and 5?",
    "No, that is wrong. Please answer in one sentence.",
    "Thanks, that is perfect!",
    "And how much is it times three?",
)


class PromptEngine(SimulatedEngine):
    """The simulation's engine without waits and faults."""

    PAUSES: ClassVar[Sequence[float]] = (0.0,)

    def __init__(self) -> None:
        world: Any = SimpleNamespace(faults=Faults())
        super().__init__(world, "soak")

    async def _reached(self) -> None:
        pass


class CountingTrainer:
    """A trainer whose weights are the number of its steps."""

    def __init__(self) -> None:
        self.steps = 0

    async def obstacle(self) -> str:
        """There is none."""
        return ""

    async def step(self, samples: Sequence[Sample], recipe: Recipe) -> StepReport:
        """Count."""
        self.steps += 1
        metrics = {"loss/total": 0.1, "gradient/norm": 0.1, "learning_rate": 0.1, "tokens": 1.0, "seconds": 0.1}
        ids = [sample.sample_id for sample in samples]
        return StepReport(step=self.steps, sample_ids=ids, metrics=metrics | {"updates": 1.0})

    async def save(self, path: str) -> Checkpoint:
        """Write the number."""
        with files.atomic_folder(path) as folder:
            (folder / SERVED).mkdir()
            for name in ("meta.json", f"{SERVED}/weights.json"):
                (folder / name).write_text(json.dumps({"step": self.steps}))
        return Checkpoint(path=path, served=str(Path(path) / SERVED), step=self.steps)

    async def restore(self, checkpoint: str | None) -> None:
        """Read it back."""
        self.steps = json.loads((Path(checkpoint) / "meta.json").read_text())["step"] if checkpoint else 0

    async def publish(self, checkpoint: Checkpoint, version: int, engine: Any, *, live: bool) -> None:
        """Let the engine load it."""
        await engine.load(version, checkpoint.served, live=live)

    async def close(self) -> None:
        """Nothing to release."""


def settings_of(data: Path) -> Settings:
    """The settings of both processes; no turn is too old, since the proxy's engine never gets a new version."""
    return Settings(
        data=data, api_key=KEY, device="cpu", judge="rules", method="binary", batch_size=64, guard=False,
        max_version_lag=1_000_000, audit_fraction=0.0, keep_checkpoints="3",
    )  # fmt: skip


async def learn(data: Path) -> None:
    """Run the learner until SIGTERM."""
    die_with_parent()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    learner: Any = learner_main
    learner.create_engine = lambda settings, owns: PromptEngine()
    learner.create_trainer = lambda settings: CountingTrainer()
    await learner_main.run(settings_of(data), stop)


class Soak:
    """The clients and the samples of one run."""

    def __init__(self, app: Any, journal: AsyncJournal, learner: int, data: Path, turns: int) -> None:
        self._app = app
        self._journal = journal
        self._own, self._learner = psutil.Process(), psutil.Process(learner)
        self._data = data
        self._turns = turns
        self._begun = 0
        self._random = Random("soak")
        self.done = 0
        self.seconds = array("d", bytes(8 * turns))
        """Of each request, `done` so far. It has its size from the start, so as not to grow with the turns."""
        self.memory: list[tuple[int, float, float, int]] = []
        """Turns so far, kB of the proxy and of the learner, bytes of the journal."""

    async def talk(self) -> None:
        """Be one client after the other until all turns are used up."""
        while self._begun < self._turns:
            session, history = f"soak-{self._random.getrandbits(64):016x}", []
            for _ in range(SESSION_TURNS):
                if self._begun >= self._turns:
                    return
                self._begun += 1
                history.append({"role": "user", "content": self._random.choice(TEXTS)})
                body = {"model": "policy", "messages": history, "max_tokens": 32}
                began = time.perf_counter()
                reply = await self._request("/v1/chat/completions", body, session)
                self.seconds[self.done] = time.perf_counter() - began
                self.done += 1
                history.append({"role": "assistant", "content": reply.json()["choices"][0]["message"]["content"]})
                if self._random.random() < 0.1:
                    thumb = {"turn_id": reply.headers["x-openclaw-rl-turn"], "thumb": "down"}
                    await self._request("/rl/feedback", thumb, session)
                if self.done % max(1, self._turns // SAMPLES) == 0:
                    await self._sample()
            await self._request("/rl/session-done", {"session_id": session}, session)

    async def all_judged(self) -> bool:
        """True if no turn waits for the judge."""
        return not await self._journal.waiting_count()

    async def _sample(self) -> None:
        """Wait for a judge that is far behind, then read the figures."""
        while await self._journal.waiting_count() > MOST_WAITING:
            await asyncio.sleep(0.2)
        own, learner = (process.memory_info().rss / 1024 for process in (self._own, self._learner))
        size = sum(path.stat().st_size for path in self._data.glob("journal.db*"))
        self.memory.append((self.done, own, learner, size))
        if len(self.memory) % (SAMPLES // 10) == 0:
            log.print(f"{self.done} turns: proxy {own / 1024:.1f} MB, learner {learner / 1024:.1f} MB")

    async def _request(self, path: str, body: Any, session: str) -> SimulatedReply:
        reply: asyncio.Future[SimulatedReply] = asyncio.get_running_loop().create_future()
        await answer(self._app, "POST", path, body, {"x-session-id": session}, reply, asyncio.Event())
        found = await reply
        if found.status != 200:
            raise ConfigError(f"{path} answered {found.status}: {found.body[:300]!r}")
        return found

    def figures(self) -> dict[str, Any]:
        """The result."""
        later = [sample for sample in self.memory if sample[0] >= WARM_UP * self._turns]
        turns, own, learner, size = (numpy.array(column, dtype=float) for column in zip(*later, strict=True))
        tenth, warm = max(1, self._turns // 10), int(WARM_UP * self._turns)
        start, end = self.seconds[warm : warm + tenth], self.seconds[-tenth:]
        return {
            "turns": self.done,
            "proxy_slope_kb_per_1000": round(1000 * float(numpy.polyfit(turns, own, 1)[0]), 1),
            "learner_slope_kb_per_1000": round(1000 * float(numpy.polyfit(turns, learner, 1)[0]), 1),
            "journal_bytes_per_turn": round(float(numpy.polyfit(turns, size, 1)[0]), 1),
            "p99_ratio": round(milliseconds(end, 0.99) / milliseconds(start, 0.99), 3),
            "p50_ratio": round(milliseconds(end, 0.5) / milliseconds(start, 0.5), 3),
            "proxy_mb": [round(own[0] / 1024, 1), round(own[-1] / 1024, 1)],
            "learner_mb": [round(learner[0] / 1024, 1), round(learner[-1] / 1024, 1)],
        }


async def _until(holds: Callable[[], Awaitable[Any]]) -> None:
    """Wait until something is there. Raises `TimeoutError` after two minutes."""
    async with asyncio.timeout(120.0):
        while not await holds():
            await asyncio.sleep(0.2)


@contextlib.asynccontextmanager
async def _learner(data: Path) -> AsyncIterator[int]:
    """The learner process; its id."""
    command = [sys.executable, "-m", "bench.soak", "--learner", str(data)]
    process = await asyncio.create_subprocess_exec(*command, env={**os.environ, "PYTHONPATH": os.getcwd()})
    try:
        yield process.pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def soak(turns: int, clients: int, *, trace: bool) -> dict[str, Any]:
    """Run all turns and return the result."""
    with tempfile.TemporaryDirectory(prefix="soak") as folder:
        data = Path(folder) / "data"
        data.mkdir()
        settings = settings_of(data)
        service = ProxyService(settings, AsyncJournal(settings.serve.journal_path), PromptEngine(), prompter())
        await service.start()
        await service.watch.refresh()
        gc.freeze()
        try:
            async with _learner(data) as learner:
                watched = Soak(create_app(service), service.journal, learner, data, turns)
                if trace:
                    tracemalloc.start()
                before = tracemalloc.take_snapshot() if trace else None
                await _until(service.journal.live_version)
                await asyncio.gather(*(watched.talk() for _ in range(clients)))
                await _until(watched.all_judged)
                if before is not None:
                    for line in tracemalloc.take_snapshot().compare_to(before, "lineno")[:20]:
                        log.print(str(line), markup=False)
                accounts = await service.journal.accounting()
                log.print(f"{accounts}", markup=False)
        finally:
            await service.stop()
    return watched.figures() | {"consumed": accounts["consumed"], "lost": accounts["lost"]}


async def measure(options: argparse.Namespace) -> int:
    """Run it; returns 1 if a turn was lost."""
    sqlite.PAGE_CACHE_KB = PAGE_CACHE_KB
    if options.learner:
        await learn(options.learner)
        return 0
    found = await soak(options.turns, options.clients, trace=options.trace)
    report(options, "growth", list(found), [[str(value) for value in found.values()]], found)
    return int(bool(found["lost"]))


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--turns", type=int, default=50_000, help="number of turns")
    options.add_argument("--clients", type=int, default=4, help="concurrent clients")
    options.add_argument("--trace", action="store_true", help="print the lines of the proxy whose memory grew (slow)")
    options.add_argument("--learner", type=Path, help=argparse.SUPPRESS)
    return run(options, measure)


if __name__ == "__main__":
    sys.exit(main())
