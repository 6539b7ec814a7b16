"""The simulated service: the real proxy, learner and journal, an engine and a trainer that follow a script, and faults.

Proxy and learner are the product's own programs in simulated processes, each with a journal of its own on one SQLite
file. Only what waits or calls a model is replaced: threads run as callbacks, the writer of the journal too.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shutil
import sqlite3
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple
from unittest.mock import patch

from bench.simulate.loop import PROCESS, SimulatedProcess, VirtualLoop, virtual_time
from openclaw_rl.learner import main as learner_main
from openclaw_rl.proxy.app import create_app
from openclaw_rl.proxy.service import ProxyService
from openclaw_rl.shared import files
from openclaw_rl.shared.checkpoints import SERVED, folder_digest
from openclaw_rl.shared.engine.protocol import EngineInfo, Scores, Tokens
from openclaw_rl.shared.errors import EngineError, OpenClawRLError, TrainerAway, TrainerError, TrainerOutOfMemory
from openclaw_rl.shared.journal import AsyncJournal, Journal, async_journal, sqlite
from openclaw_rl.shared.journal.writer import GroupWriter
from openclaw_rl.shared.records import Sample, Sampling, VersionSpan
from openclaw_rl.shared.rendering.prompter import Prompter
from openclaw_rl.shared.settings.settings import EMBEDDED_POLICY, Settings
from openclaw_rl.shared.trainer import Checkpoint, Recipe, StepReport

KEY = "key"
ANSWERS = ("It is 12.", "I do not know.", "Take two of them, and then one more.", "Yes.")
SLOWEST_CALL = 15.0
"""Seconds until a call to an engine that hangs ends with a time-out."""


@cache
def prompter() -> Prompter:
    """The renderer of the policy that ships: one for all simulations."""
    return Prompter(EMBEDDED_POLICY)


@cache
def _answers() -> list[list[int]]:
    found = prompter()
    return [[*found.tokenizer.encode(text), found.stop_ids[0]] for text in ANSWERS]


class SimulatedReply(NamedTuple):
    """An HTTP response; status 0: the connection was refused or broke."""

    status: int
    headers: Mapping[str, str] = MappingProxyType({})
    body: bytes = b""

    def json(self) -> Any:
        """The body."""
        return json.loads(self.body)


@dataclass
class Faults:
    """The faults that hold now. Times are those of the virtual clock; `engine_503` and `load_400` count calls."""

    engine_away: float = 0.0
    engine_hangs: float = 0.0
    engine_503: int = 0
    load_400: int = 0
    journal_busy: float = 0.0
    journal_full: float = 0.0
    steps: deque[str] = field(default_factory=deque)
    """The ends of the next steps: `error`, `bug`, `memory`, `away`, `known` or `reject`."""
    saves: int = 0
    """Saves that fail."""


class SimulatedEngine:
    """An engine that knows which versions it holds and answers with one of a few texts. `PAUSES`: seconds between the
    two parts of an answer.
    """

    PAUSES: ClassVar[Sequence[float]] = (0.0, 0.01, 0.3)

    def __init__(self, world: World, seed: str) -> None:
        self._world = world
        self._random = Random(f"{seed} engine")
        self.restarts = 0
        self.restart()

    def restart(self) -> None:
        """Hold nothing but the base, as a fresh process does."""
        self.restarts += 1
        self.live = 0
        self.versions: dict[int, tuple[str, str]] = {0: (str(EMBEDDED_POLICY), "")}

    async def generate(
        self, prompt_ids: Sequence[int] | bytes, sampling: Sampling, *, version: int | None = None, **_: Any
    ) -> AsyncIterator[Tokens]:
        """One of the texts in two parts, by the version that was live when it began."""
        await self._reached()
        number = self._known(version)
        begun = self.restarts
        ids = self._random.choice(_answers())
        half = len(ids) // 2
        yield Tokens(ids[:half], [-1.0] * half, number)
        await asyncio.sleep(self._random.choice(self.PAUSES))
        if self.restarts != begun:
            raise EngineError("the engine's connection broke")
        rest = [-1.0] * (len(ids) - half)
        spans = [VersionSpan(number, 0, len(ids))]
        yield Tokens(ids[half:], rest, number, finish_reason="stop", versions=spans)

    async def score(
        self, prompt_ids: Sequence[int], continuation_ids: Sequence[int], *, version: int | None = None, **_: Any
    ) -> Scores:
        """The logprobs that `generate` gives."""
        await self._reached()
        return Scores([-1.0] * len(continuation_ids), self._known(version))

    async def load(self, version: int, path: str, *, live: bool) -> None:
        """Hold what is in a folder."""
        await self._reached()
        if self._world.faults.load_400:
            self._world.faults.load_400 -= 1
            raise EngineError(f"{path} holds weights of other shapes", status=400)
        if version:
            if not (Path(path) / "weights.json").is_file():
                raise EngineError(f"{path} holds no weights", status=400)
            self.versions[version] = (path, folder_digest(Path(path)))
        if live:
            self.live = version

    async def info(self) -> EngineInfo:
        """Its versions, and the digest of what it loaded as the live one."""
        await self._reached()
        vocabulary = prompter().vocab_size
        numbers = tuple(sorted(self.versions))
        digest = self.versions[self.live][1]
        return EngineInfo(self.live, numbers, str(EMBEDDED_POLICY), 4096, vocabulary, digest=digest)

    async def close(self) -> None:
        """A client leaves; the engine stays."""

    async def _reached(self) -> None:
        faults, loop = self._world.faults, self._world.loop
        await asyncio.sleep(self._random.choice((0.0, 0.0, 0.001, 0.02)))
        if faults.engine_503:
            faults.engine_503 -= 1
            raise EngineError("the engine is busy", status=503)
        if loop.time() < faults.engine_hangs:
            await asyncio.sleep(min(SLOWEST_CALL, faults.engine_hangs - loop.time()))
            raise EngineError("no answer in time")
        if loop.time() < faults.engine_away:
            raise EngineError("the engine cannot be reached")

    def _known(self, version: int | None) -> int:
        number = self.live if version is None else version
        if number not in self.versions:
            raise EngineError(f"version {number} is not loaded", status=404)
        return number


class SimulatedTrainer:
    """A trainer whose weights are the list of the batches that it has learned from."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.learned: list[list[str]] = []

    async def obstacle(self) -> str:
        """There is none."""
        return ""

    async def step(self, samples: Sequence[Sample], recipe: Recipe) -> StepReport:
        """Learn the batch, or end as the script of faults says."""
        await asyncio.sleep(self._world.random.choice((0.0, 0.2, 1.0, 3.0)))
        end = self._world.faults.steps.popleft() if self._world.faults.steps else ""
        ids = [sample.sample_id for sample in samples if sample.turn_id]
        if end == "error":
            raise TrainerError("the loss is not finite")
        if end == "away":
            raise TrainerAway("the provider is away")
        if end == "memory":
            raise TrainerOutOfMemory("the step does not fit", sample_id=ids[0] if ids else "")
        if end == "bug":
            raise RuntimeError("a fault that is not ours")
        if end != "known":
            self.learned = [*self.learned, ids]
        metrics = {"loss/total": 0.1, "gradient/norm": 0.1, "learning_rate": 0.1, "tokens": 1.0, "seconds": 0.1}
        metrics |= {"updates": float(end != "known"), "kl/parent": 1e9 if end == "reject" else 0.01}
        return StepReport(step=len(self.learned), sample_ids=ids, metrics=metrics)

    async def save(self, path: str) -> Checkpoint:
        """Write the list, as both parts of a checkpoint."""
        await asyncio.sleep(self._world.random.choice((0.0, 0.05)))
        if self._world.faults.saves:
            self._world.faults.saves -= 1
            raise TrainerError(f"Could not write {path}: no space is left")
        with files.atomic_folder(path) as folder:
            (folder / SERVED).mkdir()
            for name in ("trainer.json", f"{SERVED}/weights.json"):
                (folder / name).write_text(json.dumps(self.learned))
            (folder / "meta.json").write_text(json.dumps({"step": len(self.learned)}))
        return Checkpoint(path=path, served=str(Path(path) / SERVED), step=len(self.learned))

    async def restore(self, checkpoint: str | None) -> None:
        """Read it back."""
        await asyncio.sleep(self._world.random.choice((0.0, 0.05)))
        try:
            self.learned = json.loads((Path(checkpoint) / "trainer.json").read_text()) if checkpoint else []
        except OSError as error:
            raise TrainerError(f"{checkpoint} cannot be restored: {error}") from error

    async def publish(self, checkpoint: Checkpoint, version: int, engine: Any, *, live: bool) -> None:
        """Let the engine load it."""
        await engine.load(version, checkpoint.served, live=live)

    async def close(self) -> None:
        """Nothing to release."""


class InlineWriter(GroupWriter):
    """The journal's writer with callbacks in place of its thread."""

    def __init__(self, world: World, database: sqlite.Database, linger: float) -> None:
        self._world = world
        self._database = database
        self._linger = world.linger
        self._inbox: deque[Any] = deque()
        self._gathered = []
        self._lock = world.no_lock
        self._closed = False
        process = PROCESS.get()
        if process is not None:
            process.databases.append(database)

    def close(self) -> None:
        """Write what is queued."""
        self._closed = True
        self._pass_on()
        while self._inbox:
            self._drain()

    def _pass_on(self) -> None:
        if self._gathered:
            self._inbox.append(self._gathered)
            self._gathered = []
            self._world.loop.call_later(self._world.random.choice((0.0, 0.0, 0.002, 0.05)), self._drain)

    def _drain(self) -> None:
        operations: list[Any] = []
        while self._inbox and len(operations) < self._world.group_limit:
            operations += self._inbox.popleft()
        if operations:
            self._write(operations)


class SimulatedConnection(sqlite.Connection):
    """A connection whose transactions fail as the faults say."""

    world: ClassVar[World]

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        """Run a statement."""
        world = self.world
        if sql == "BEGIN IMMEDIATE" and world.loop.time() < world.faults.journal_busy:
            raise _sqlite_error("database is locked", sqlite3.SQLITE_BUSY)
        if sql != "COMMIT":
            return super().execute(sql, *values)
        if world.loop.time() < world.faults.journal_full:
            raise _sqlite_error("database or disk is full", sqlite3.SQLITE_FULL)
        done = super().execute(sql)
        process = PROCESS.get()
        if process is not None:
            process.committed()
        return done


def _sqlite_error(text: str, code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorcode = code
    return error


class World:
    """A data folder with a proxy, a learner and an engine on it. `disturbed` are the times at which a request may fail
    for another reason than the learner; `crashes` what ended a process by itself.
    """

    def __init__(self, loop: VirtualLoop, data: Path, seed: str, settings: dict[str, Any]) -> None:
        self.loop = loop
        self.data = data
        self.random = Random(f"{seed} parts")
        self.linger = self.random.choice((0.0, 0.02, 0.02, 1.0))
        self.group_limit = self.random.choice((1, 256, 256))
        self.no_lock: Any = ExitStack()
        self.faults = Faults()
        self.engine = SimulatedEngine(self, seed)
        fields: dict[str, Any] = {
            "data": data,
            "api_key": KEY,
            "device": "cpu",
            "judge": "rules",
            "request_timeout": 20.0,
        }
        self.settings = Settings(**(fields | settings))
        self.app: Any = None
        self.proxy: SimulatedProcess | None = None
        self.learner: SimulatedProcess | None = None
        self.stop = asyncio.Event()
        self.disturbed: list[tuple[float, float]] = []
        self.crashes: list[str] = []
        self.durable: set[str] = set()
        self.trace: Callable[[str], None] = lambda line: None
        self._replies: dict[asyncio.Future[SimulatedReply], SimulatedProcess] = {}
        self._restart_pauses = {"proxy": 0.1, "learner": 0.1}

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints."""
        return self.settings.checkpoints_path

    def disturb(self, seconds: float) -> None:
        """Note that until then, and a little longer, a request may fail."""
        self.disturbed.append((self.loop.time(), self.loop.time() + seconds + 6.0))

    def was_disturbed(self, begin: float, end: float) -> bool:
        """True if a request in this time may have failed for another reason than the learner."""
        return any(since <= end and begin <= until for since, until in self.disturbed)

    def start_proxy(self) -> None:
        """Start a proxy process."""
        self.proxy = process = SimulatedProcess("proxy")
        process.killed = partial(self._ended, process)
        self.loop.start(process, self._run_proxy(process))

    def start_learner(self) -> None:
        """Start a learner process."""
        self.learner = process = SimulatedProcess("learner")
        process.killed = partial(self._ended, process)
        self.stop = asyncio.Event()
        self.loop.start(process, self._run_learner(process))

    def cut_power(self) -> None:
        """Kill everything; folders whose name was not synced are gone."""
        self.trace("power cut")
        self.restart_engine(1.0)
        for process in (self.proxy, self.learner):
            if process is not None:
                self.kill(process)
        if self.checkpoints.is_dir():
            for folder in sorted(self.checkpoints.iterdir()):
                if folder.name not in self.durable:
                    shutil.rmtree(folder)

    def kill(self, process: SimulatedProcess) -> None:
        """Kill a process now."""
        self.trace(f"kill {process.name}")
        self.loop.kill(process)

    def restart_engine(self, seconds: float) -> None:
        """Kill the engine; another one answers after some seconds."""
        self.trace("restart engine")
        self.engine.restart()
        self.faults.engine_away = self.loop.time() + seconds
        self.disturb(seconds)

    def sync(self, descriptor: int) -> None:
        """Stand for `os.fsync`: the names in a synced folder survive a power cut."""
        if self.checkpoints.is_dir() and os.fstat(descriptor).st_ino == self.checkpoints.stat().st_ino:
            self.durable = {one.name for one in self.checkpoints.iterdir()}

    def figures(self) -> dict[str, int]:
        """Counts of the journal: turns that wait for a judge, samples that wait for a step, and the numbers of the
        live version, the newest, and the newest that was accepted (-1 where there is none).
        """
        queries = {
            "queued": "count(*) FROM judge_queue",
            "ready": "count(*) FROM samples WHERE state = 'ready'",
            "live": "coalesce(max(number), -1) FROM versions WHERE state = 'live'",
            "newest": "coalesce(max(number), -1) FROM versions",
            "accepted": "coalesce(max(number), -1) FROM versions WHERE state IN ('live', 'retired')",
        }
        with contextlib.closing(sqlite3.connect(self.data / "journal.db")) as connection:
            return {name: connection.execute(f"SELECT {query}").fetchone()[0] for name, query in queries.items()}

    def state(self) -> str:
        """The learner's state as it reports it."""
        with contextlib.closing(sqlite3.connect(self.data / "journal.db")) as connection:
            row = connection.execute("SELECT status FROM processes WHERE name = 'learner'").fetchone()
        status = json.loads(row[0]) if row else {}
        return f"{status.get('state')}: {status.get('detail')}; {status.get('last_error')}"

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: dict[str, str] | None = None,
        leaves_after: float | None = None,
    ) -> SimulatedReply:
        """Send a request to the proxy. The client leaves after so many seconds."""
        process, app = self.proxy, self.app
        if app is None or process is None or not process.alive:
            return SimulatedReply(0)
        reply: asyncio.Future[SimulatedReply] = self.loop.create_future()
        self._replies[reply] = process
        left = asyncio.Event()
        if leaves_after is not None:
            self.loop.call_later(leaves_after, left.set)
        self.loop.start(process, answer(app, method, path, body, headers or {}, reply, left))
        try:
            return await reply
        finally:
            self._replies.pop(reply, None)

    async def _run_proxy(self, process: SimulatedProcess) -> None:
        try:
            journal = AsyncJournal(self.settings.serve.journal_path)
            service = ProxyService(self.settings, journal, self.engine, prompter())
            await service.start()
        except OpenClawRLError as error:
            self.trace(f"the proxy cannot start: {error}")
            self.loop.kill(process)
            return
        self.app = create_app(service)
        self._restart_pauses["proxy"] = 0.1

    async def _run_learner(self, process: SimulatedProcess) -> None:
        try:
            await learner_main.run(self.settings, self.stop)
        except OpenClawRLError as error:
            self.trace(f"the learner ended: {error}")
        except Exception as error:
            self.crashes.append(f"the learner ended with {type(error).__name__}: {error}")
        self.loop.kill(process)

    def _ended(self, process: SimulatedProcess) -> None:
        """Start a process again, as the supervisor does."""
        if process is self.proxy:
            self.app = None
            self.disturb(self._restart_pauses["proxy"])
            for reply, owner in list(self._replies.items()):
                if owner is process and not reply.done():
                    reply.set_result(SimulatedReply(0))
        pause = self._restart_pauses[process.name]
        self._restart_pauses[process.name] = min(2 * pause, 5.0)
        self.loop.call_later(pause, self.start_proxy if process is self.proxy else self.start_learner)


async def answer(
    app: Any,
    method: str,
    path: str,
    body: Any,
    headers: Mapping[str, str],
    reply: asyncio.Future[SimulatedReply],
    left: asyncio.Event,
) -> None:
    """Let an application answer a request into `reply`; the client is gone once it has `left`."""
    path, _, query = path.partition("?")
    given = {"authorization": f"Bearer {KEY}", "content-type": "application/json", **headers}
    scope = {
        "type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in given.items()], "http_version": "1.1",
        "scheme": "http", "server": ("127.0.0.1", 30000), "client": ("127.0.0.1", 1), "root_path": "",
    }  # fmt: skip
    data = b"" if body is None else json.dumps(body).encode()
    unread = [{"type": "http.request", "body": data, "more_body": False}]
    head: list[dict[str, Any]] = []
    parts: list[bytes] = []

    async def receive() -> dict[str, Any]:
        if unread:
            return unread.pop()
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        if left.is_set():
            raise OSError("the client left")
        if message["type"] == "http.response.start":
            head.append(message)
            return
        parts.append(message.get("body", b""))
        if not message.get("more_body") and not reply.done():
            sent = {bytes(name).decode(): bytes(value).decode() for name, value in head[0]["headers"]}
            reply.set_result(SimulatedReply(head[0]["status"], sent, b"".join(parts)))

    try:
        await app(scope, receive, send)
    finally:
        if not reply.done():
            reply.set_result(SimulatedReply(0))


@cache
def _empty_journal(folder: Path) -> bytes:
    path = folder / "template.db"
    Journal(path).close()
    return path.read_bytes()


@contextmanager
def simulated(loop: VirtualLoop, folder: Path, seed: str, settings: dict[str, Any]) -> Iterator[World]:
    """A world on a new data folder; the product's clocks, threads and random numbers are the loop's meanwhile."""
    data = folder / "data"
    data.mkdir()
    with patch.object(sqlite, "SYNCHRONOUS", "OFF"), ExitStack() as stack:
        (data / "journal.db").write_bytes(_empty_journal(folder.parent))
        stack.enter_context(virtual_time(loop))
        world = World(loop, data, seed, settings)
        ids = Random(f"{seed} ids")
        for owner, name, instead in (
            (os, "urandom", ids.randbytes),
            (async_journal, "GroupWriter", partial(InlineWriter, world)),
            (sqlite, "Connection", SimulatedConnection),
            (SimulatedConnection, "world", world),
            (os, "fsync", world.sync),
            (learner_main, "create_engine", lambda settings, owns: world.engine),
            (learner_main, "create_trainer", lambda settings: SimulatedTrainer(world)),
            (Prompter, "from_settings", lambda settings: prompter()),
        ):
            stack.enter_context(patch.object(owner, name, instead, create=True))
        logging.disable(logging.CRITICAL)
        stack.callback(logging.disable, logging.NOTSET)
        yield world
