"""Take the judge or the learner away, pause training or import thousands of turns, and count what is dropped.

    python -m bench.outages --json
    python -m bench.outages --method rehearse --situation "judge away for an hour"

People talk to the product's proxy all the time; judge loop, learner and journal are the product's too, with shipped
settings, in one process on a virtual clock (`bench.simulate`). Engine, judge and trainer follow a script, at the pace
of real ones: a verdict takes `VERDICT_SECONDS`, a step `STEP_SECONDS` and `SAMPLE_SECONDS` for each of its
samples. After a while of normal work a situation begins and ends, and the backlog that it left must be settled: every
turn is judged, and learned from or set aside for a reason. `dropped` are those set aside because they became too old,
by `bench.reliability_check`, which knows nothing of the product and looks for what is lost, too. The exit code is 1 if
anything is lost or refused, if a backlog stays, or if more than `MOST_DROPPED` of the settled turns are dropped.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sqlite3
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from unittest.mock import patch

from bench.cells.cache import Cache, run_all
from bench.program import log, parser, report, run
from bench.reliability_check import check, figures
from bench.reliability_page import MOST_DROPPED
from bench.simulate.events import TEXTS
from bench.simulate.loop import SimulatedProcess, VirtualLoop, collecting
from bench.simulate.seeds import MEMORY
from bench.simulate.world import ANSWERS, World, prompter, simulated
from bench.soak import CountingTrainer
from openclaw_rl.cli.trajectories.imported import Importer
from openclaw_rl.cli.trajectories.trajectory import sessions_in
from openclaw_rl.learner import audit, progress
from openclaw_rl.learner import loop as learner_loop
from openclaw_rl.learner import main as learner_main
from openclaw_rl.learner.judge import loop as judge_loop
from openclaw_rl.learner.judge.rules.rules import RuleJudge
from openclaw_rl.learner.judge.votes import TRIES
from openclaw_rl.proxy import service as proxy_service
from openclaw_rl.proxy.conversation import sessions
from openclaw_rl.proxy.engine import watch
from openclaw_rl.shared.errors import ConfigError, JudgeAway
from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.loop_lag import INTERVAL_SECONDS, watch_lag
from openclaw_rl.shared.records import Judgement, NextState, Sample, Turn
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.shared.trainer import Recipe, StepReport

METHODS = ("binary", "rehearse")
"""The published method, which a turn can become too old for, and the default one."""
HOUR, DAY = 3600.0, 86400.0
CLIENTS = 2
THINKING_SECONDS = 60.0
"""Mean time from an answer to the next message."""
SESSION_TURNS = (2, 10)
THUMBS = 0.1
"""Share of answers that get a thumb."""
BEFORE_SECONDS = 1800.0
"""Normal work before a situation begins."""
MOST_HEALING_SECONDS = 2 * DAY
LOOK_SECONDS = 10.0
QUIET_SECONDS = 60.0
"""For the judge, after the last word."""
VERDICT_SECONDS = 2.0
STEP_SECONDS, SAMPLE_SECONDS = 2.0, 0.25
SELDOM = 10
"""The loops of the product look for work so many times less often than they do. That changes no rule: people talk once
a minute, and a day passes in minutes.
"""
_PAUSES = (
    (judge_loop, "POLL"), (learner_loop, "POLL"), (learner_loop, "_RETRY"), (audit, "POLL"), (progress, "INTERVAL"),
    (proxy_service, "HEARTBEAT_SECONDS"), (sessions, "ERASING_SECONDS"), (watch, "REFRESH_SECONDS"),
    (watch, "AWAY_SECONDS"),
)  # fmt: skip
"""Of the loops that look for work or say that they are there."""

COLUMNS = (
    "situation", "method", "turns", "settled", "dropped", "dropped_share", "lost", "versions", "largest_batch",
    "seconds", "waiting",
)  # fmt: skip

_BACKLOG = """
SELECT count(*) FROM turns WHERE id <= ? AND (id IN (SELECT turn FROM judge_queue)
OR id IN (SELECT turn FROM samples WHERE state = 'ready'))
"""


_LARGEST = "SELECT max(size) FROM (SELECT count(*) AS size FROM version_samples GROUP BY version)"


class DistantJudge:
    """The rules, as far away as a model: a verdict takes its time, and while the server is gone there is none."""

    def __init__(self, seconds: float) -> None:
        self._rules = RuleJudge()
        self._given_up = TRIES * seconds
        self.gone = False

    async def judge(self, turn: Turn, next_state: NextState) -> Judgement:
        """The rules' judgement. Raises `JudgeAway`, as a model judge does whose tries all end with a time-out."""
        if self.gone:
            await asyncio.sleep(self._given_up)
            raise JudgeAway("the judge waits for its engine: no answer in time")
        await asyncio.sleep(VERDICT_SECONDS)
        return await self._rules.judge(turn, next_state)

    async def close(self) -> None:
        """Nothing to release."""


class SlowTrainer(CountingTrainer):
    """A trainer that takes the time of its batch."""

    async def step(self, samples: Sequence[Sample], recipe: Recipe) -> StepReport:
        """Count."""
        await asyncio.sleep(STEP_SECONDS + SAMPLE_SECONDS * len(samples))
        return await super().step(samples, recipe)


class TalkingPeople:
    """Clients that talk until they are stopped. `events`: what was acknowledged to them, for
    `bench.reliability_check`; `refused`: chats and thumbs that were not answered.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.events: list[dict[str, str]] = []
        self.turns = 0
        self.refused = 0

    @asynccontextmanager
    async def talking(self) -> AsyncIterator[None]:
        """Let them talk for the block."""
        clients = [asyncio.create_task(self._client(number)) for number in range(CLIENTS)]
        try:
            yield
        finally:
            for client in clients:
                client.cancel()
            await asyncio.gather(*clients, return_exceptions=True)

    async def _client(self, number: int) -> None:
        draw = Random(f"client {number}")
        talks = 0
        while True:
            talks += 1
            session, messages, last = f"person-{number}-{talks}", [], ""
            for _ in range(draw.randint(*SESSION_TURNS)):
                await asyncio.sleep(draw.expovariate(1.0 / THINKING_SECONDS))
                messages.append({"role": "user", "content": draw.choice(TEXTS)})
                body = {"model": "policy", "messages": messages, "max_tokens": 32}
                reply = await self._world.request(
                    "POST", "/v1/chat/completions", body, headers={"x-session-id": session}
                )
                if reply.status != 200:
                    self.refused += 1
                    break
                self.turns += 1
                if last:
                    self.events.append({"kind": "next_state", "turn_id": last})
                last = reply.headers["x-openclaw-rl-turn"]
                self.events.append({"kind": "turn", "turn_id": last})
                messages.append({"role": "assistant", "content": reply.json()["choices"][0]["message"]["content"]})
                if draw.random() < THUMBS:
                    await self._thumb(last, draw.choice(("up", "down")))

    async def _thumb(self, turn_id: str, thumb: str) -> None:
        word = f"fb_{len(self.events):032d}"
        body = {"turn_id": turn_id, "thumb": thumb, "feedback_id": word}
        reply = await self._world.request("POST", "/rl/feedback", body)
        if reply.status != 200:
            self.refused += 1
            return
        self.events.append({"kind": "feedback", "turn_id": turn_id, "feedback_id": word})


class OutageScene:
    """A service with people who talk to it, and a judge that can be taken away. `imports`: the turns of a file."""

    def __init__(self, world: World, judge: DistantJudge, imports: int) -> None:
        self.world = world
        self.judge = judge
        self.people = TalkingPeople(world)
        self.imports = imports

    async def judge_away(self, seconds: float) -> None:
        """The judge's server is gone."""
        self.judge.gone = True
        await asyncio.sleep(seconds)
        self.judge.gone = False

    async def learner_dead(self, seconds: float) -> None:
        """The learner, and the judge loop in it, do not run."""
        learner = self.world.learner
        assert learner is not None, "it was started"
        learner.killed = None
        self.world.kill(learner)
        await asyncio.sleep(seconds)
        self.world.start_learner()

    async def paused(self, seconds: float) -> None:
        """Training is paused."""
        for path, wait in (("/rl/pause", seconds), ("/rl/resume", 0.0)):
            reply = await self.world.request("POST", path)
            if reply.status != 200:
                raise ConfigError(f"{path} answered {reply.status}: {reply.body[:300]!r}")
            await asyncio.sleep(wait)

    async def imported(self, seconds: float) -> None:
        """Import a file as `openclaw-rl import` does."""
        path = self.world.data.parent / "trajectories.jsonl"
        _write_trajectories(path, self.imports)
        done = asyncio.get_running_loop().create_future()
        self.world.loop.start(SimulatedProcess("import"), self._import(path, done))
        self.people.turns += await done

    async def _import(self, path: Path, done: asyncio.Future[int]) -> None:
        settings, engine = self.world.settings, self.world.engine
        journal = AsyncJournal(settings.serve.journal_path)
        try:
            context = (await engine.info()).context_length
            importer = Importer(journal, engine, prompter(), policy=settings.serve.model_name, context=context)
            added = [await importer.add(session) for session in sessions_in(path)]
            done.set_result(sum(one.turns for one in added if one is not None))
        except BaseException as error:
            done.set_exception(error)
        finally:
            await journal.close()


class OutageSituation(NamedTuple):
    """`begin` lasts for `seconds` and ends with what it began being well again."""

    name: str
    begin: Callable[[OutageScene, float], Coroutine[Any, Any, None]]
    seconds: float = 0.0


SITUATIONS = (
    OutageSituation("judge away for an hour", OutageScene.judge_away, HOUR),
    OutageSituation("judge away for a day", OutageScene.judge_away, DAY),
    OutageSituation("learner dead for an hour", OutageScene.learner_dead, HOUR),
    OutageSituation("training paused for a day", OutageScene.paused, DAY),
    OutageSituation("import", OutageScene.imported),
)


def _write_trajectories(path: Path, count: int) -> None:
    """Sessions of a few turns, `count` in all."""
    draw = Random("trajectories")
    number = 0
    with path.open("w", encoding="utf-8") as file:
        while number < count:
            messages: list[dict[str, str]] = []
            turns: list[dict[str, Any]] = []
            text = draw.choice(TEXTS)
            for _ in range(min(draw.randint(*SESSION_TURNS), count - number)):
                messages.append({"role": "user", "content": text})
                answer, text = draw.choice(ANSWERS), draw.choice(TEXTS)
                turns.append({"prompt": list(messages), "response": answer, "next_state": text})
                messages.append({"role": "assistant", "content": answer})
            del turns[-1]["next_state"]
            number += len(turns)
            file.write(json.dumps({"session_id": f"file-{number}", "turns": turns}) + "\n")


async def play(scene: OutageScene, situation: OutageSituation, scale: float) -> float | None:
    """Work, let the situation pass, and wait until nothing from before its end waits for a judge or a step; virtual
    seconds of that wait, `None` if it did not end. `scale` shortens everything before.
    """
    world = scene.world
    world.start_proxy()
    world.start_learner()
    await asyncio.sleep(5.0)
    async with scene.people.talking():
        await asyncio.sleep(scale * BEFORE_SECONDS)
        log.print(f"{situation.name}: {scene.people.turns} turns before")
        await situation.begin(scene, scale * situation.seconds)
        healed = world.loop.time()
        seconds: float | None = None
        newest = _one(world.data, "SELECT max(id) FROM turns")
        log.print(f"{situation.name}: {_one(world.data, _BACKLOG, newest)} of {scene.people.turns} turns wait")
        while world.loop.time() < healed + MOST_HEALING_SECONDS:
            await asyncio.sleep(LOOK_SECONDS)
            if not _one(world.data, _BACKLOG, newest):
                seconds = round(world.loop.time() - healed, 3)
                break
    await asyncio.sleep(QUIET_SECONDS)
    return seconds


def measured(
    situation: OutageSituation, folder: Path, settings: Mapping[str, Any], *, scale: float = 1.0, imports: int = 0
) -> dict[str, Any]:
    """The figures of one situation in a new folder. `settings`: those that are not as shipped, and the method."""
    loop = VirtualLoop("outages", 0.0, most_steps=sys.maxsize)
    shipped = {"request_timeout": Settings().serve.request_timeout}
    with collecting(), simulated(loop, folder, "outages", {**shipped, **settings}) as world, _scripted() as judge:
        scene = OutageScene(world, judge, imports)
        seconds = loop.run_until_complete(play(scene, situation, scale))
        crashes = list(world.crashes)  # what is abandoned below ends with errors
        _end(world)
        loop.abandon()
    found, counts = check(world.data, scene.people.events), figures(world.data)
    faults = [*crashes, *(f"{kind}: {one}" for kind, several in found.items() for one in several)]
    for fault in faults:
        log.print(f"FAULT: {fault}", markup=False)
    return {
        "situation": situation.name,
        "method": world.settings.learning.method,
        "turns": scene.people.turns,
        "refused": scene.people.refused,
        "settled": counts["settled"],
        "dropped": counts["dropped"],
        "dropped_share": round(counts["dropped"] / max(1, counts["settled"]), 4),
        "lost": len(found["acknowledged"]) + len(found["lost"]),
        "versions": counts["versions"],
        "largest_batch": _one(world.data, _LARGEST) or 0,
        "seconds": seconds,
        "waiting": _one(world.data, _BACKLOG, sys.maxsize),
        "set_aside": _set_aside(world.data),
        "faults": faults,
    }


@contextmanager
def _scripted() -> Iterator[DistantJudge]:
    judge = DistantJudge(Settings().judge.timeout)
    with ExitStack() as stack:
        stack.enter_context(patch.object(learner_main, "create", lambda settings, engine: judge))
        stack.enter_context(patch.object(learner_main, "create_trainer", lambda settings: SlowTrainer()))
        for part, name in _PAUSES:
            stack.enter_context(patch.object(part, name, SELDOM * getattr(part, name)))
        for part in (learner_main, proxy_service):
            stack.enter_context(patch.object(part, "watch_lag", partial(watch_lag, interval=SELDOM * INTERVAL_SECONDS)))
        yield judge


def _end(world: World) -> None:
    for process in (world.proxy, world.learner):
        if process is not None:
            process.killed = None
            world.kill(process)


def _one(data: Path, query: str, *values: Any) -> Any:
    """The single value of a query on the journal."""
    with closing(sqlite3.connect(f"file:{data / 'journal.db'}?mode=ro", uri=True)) as connection:
        return connection.execute(query, values).fetchone()[0]


def _set_aside(data: Path) -> dict[str, int]:
    """The turns that were set aside, by their reason with its numbers left out."""
    reasons: Counter[str] = Counter()
    with closing(sqlite3.connect(f"file:{data / 'journal.db'}?mode=ro", uri=True)) as connection:
        for reason, count in connection.execute("SELECT reason, count(*) FROM quarantines GROUP BY reason"):
            reasons[re.sub(r"\d+", "N", reason)] += count
    return dict(reasons.most_common())


class OutageJob(NamedTuple):
    """One run, for a worker process."""

    situation: str
    method: str
    scale: float
    imports: int

    @property
    def key(self) -> str:
        """A name for its result."""
        return f"{self.situation}, {self.method}"

    def run(self) -> dict[str, Any]:
        """The figures."""
        situation = next(one for one in SITUATIONS if one.name == self.situation)
        prompter()
        with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None, prefix="outages") as top:
            folder = Path(top) / "world"
            folder.mkdir()
            return measured(situation, folder, {"method": self.method}, scale=self.scale, imports=self.imports)


def measure(options: argparse.Namespace) -> int:
    """Run the situations; returns 1 if one was not survived."""
    jobs = [
        OutageJob(situation.name, method, options.scale, options.imports)
        for method in (METHODS if options.method is None else (options.method,))
        for situation in SITUATIONS
        if options.situation in (None, situation.name)
    ]
    with tempfile.TemporaryDirectory() as results:
        rows = run_all(jobs, Cache(Path(results), dict[str, Any]), options.workers, OutageJob.run, _show)
    result = {
        "situations": rows,
        "turns": sum(row["turns"] for row in rows),
        "lost": sum(row["lost"] for row in rows),
        "dropped_share": max(row["dropped_share"] for row in rows),
        "stayed": sum(row["seconds"] is None for row in rows),
    }
    shown = [[str(row[name]) for name in COLUMNS] for row in rows]
    report(options, "outages", COLUMNS, shown, result)
    kept = result["dropped_share"] <= MOST_DROPPED and not result["stayed"]
    return int(not kept or any(row["faults"] or row["refused"] for row in rows))


def _show(done: int, total: int, found: Mapping[str, Any], seconds: float) -> None:
    log.print(f"{done}/{total} ({seconds / 60:.0f} min) {found['situation']}, {found['method']}", highlight=False)


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--method", choices=METHODS, help="only this method")
    options.add_argument("--situation", choices=[one.name for one in SITUATIONS], help="only this situation")
    options.add_argument("--imports", type=int, default=10_000, help="turns of the imported file")
    options.add_argument("--workers", type=int, default=1, help="processes that run situations side by side")
    options.add_argument("--scale", type=float, default=1.0, help="factor on the length of what is away")
    return run(options, measure)


if __name__ == "__main__":
    sys.exit(main())
