"""Run a cell: held-out tasks and word problems, attempts that train, held-out tasks and word problems again."""

from __future__ import annotations

import resource
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bench.cells import code_digest
from bench.cells.lab import Lab, lab
from bench.environments.cell import EnvironmentCell, EnvironmentPoint, EnvironmentResult
from bench.environments.placebo import ShuffledOutcomes
from openclaw_rl.environments import kinds
from openclaw_rl.environments.attempt import Harness
from openclaw_rl.environments.attempt_log import AttemptLog, EndedLine
from openclaw_rl.environments.pass_rate import PASSED
from openclaw_rl.environments.runner import AttemptRunner, RunPlan
from openclaw_rl.environments.throttle import Throttle
from openclaw_rl.evaluation.personas import create, take
from openclaw_rl.evaluation.probe import probe
from openclaw_rl.evaluation.provenance import commit
from openclaw_rl.shared.chat_client import ChatClient

CONCURRENCY = 32
"""Held-out tasks and word problems at a time."""
OTHER_PHRASES = 1_000_003
PARTS = 8
PATIENCE = 600.0
SHOWN = ("group/complete", "group/constant", "group/reward", "mix/turns", "lag/mean", "kl/parent", "gradient/norm")
"""Metrics of each step that are kept."""


async def run(cell: EnvironmentCell) -> EnvironmentResult:
    """Run a cell on a fresh service. Raises `OpenClawRLError` if the code was changed meanwhile."""
    began = cpu_seconds()
    async with (
        lab(cell.settings) as service,
        ChatClient(service.url, service.key, timeout=600.0) as client,
        _kind(cell) as kind,
    ):
        with tempfile.TemporaryDirectory() as folder, AttemptLog(Path(folder) / "attempts.jsonl", "bench", {}) as log:
            work = _Work(cell, service, client, kind, log)
            before = await work.point("before")
            start = time.perf_counter()
            lines, done = await work.train(before.steps) if service.settings.learning.train else ([], True)
            seconds = time.perf_counter() - start
            after = await work.point("after")
        status = await client.get("/rl/status")
        versions = [version for version in (await client.get("/rl/versions"))["versions"] if version["number"]]
    code_digest.check_unchanged(cell)
    return EnvironmentResult(
        cell=cell,
        before=before,
        after=after,
        training=rates([(line.reward or 0.0) >= PASSED for line in lines]),
        versions=dict(Counter(version["state"] for version in versions)),
        steps=[
            {name: round(value, 4) for name, value in version["metrics"].items() if name in SHOWN}
            for version in sorted(versions, key=lambda one: int(one["number"]))
        ],
        quarantined=status["backlog"]["quarantined"],
        trained=status["trained"],
        seconds=round(seconds, 1),
        cpu_seconds=round(cpu_seconds() - began, 1),
        settled=done,
        commit=commit() or "",
    )


def cpu_seconds() -> float:
    """The CPU time of this process and of those that it has ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def rates(passed: list[bool], parts: int = PARTS) -> list[float]:
    """The share of passed attempts in each of `parts` equal parts; empty without attempts."""
    size = -(-len(passed) // parts)
    chunks = [passed[start : start + size] for start in range(0, len(passed), size or 1)]
    return [round(sum(chunk) / len(chunk), 4) for chunk in chunks]


@asynccontextmanager
async def _kind(cell: EnvironmentCell) -> AsyncIterator[kinds.TaskSource]:
    kind = kinds.create_kind(cell.environment, kinds.KindOptions())
    try:
        yield kind
    finally:
        await kinds.close_kind(kind)


class _Work:
    """The parts of a cell that run on its service."""

    def __init__(
        self, cell: EnvironmentCell, service: Lab, client: ChatClient, kind: kinds.TaskSource, log: AttemptLog
    ) -> None:
        self._cell = cell
        self._learning = service.settings.learning
        self._client = client
        self._kind = kind
        self._log = log
        self._harness = kinds.harness_of(kind, seed=cell.seed, max_steps=cell.max_steps)

    async def point(self, phase: str) -> EnvironmentPoint:
        """Attempt the held-out tasks, which the service does not keep, and ask the word problems."""
        cell = self._cell
        tasks = kinds.take_tasks(self._kind, "held-out", cell.seed, cell.held_out)
        plan = RunPlan(group=1, concurrency=CONCURRENCY, train=False, phase=phase)
        lines = await AttemptRunner(self._client, self._harness, self._log, plan).run(tasks)
        rewards = [line.reward for line in lines if line.reward is not None]
        asker = create("student", cell.seed + OTHER_PHRASES)
        problems = take(asker, "held-out", cell.seed, cell.problems)
        found = await probe(self._client, problems, persona=asker, seed=cell.seed, concurrency=CONCURRENCY)
        return EnvironmentPoint(
            version=(await self._client.get("/rl/status"))["version"]["live"],
            judged=len(rewards),
            passed=sum(reward >= PASSED for reward in rewards),
            steps=round(sum(line.steps for line in lines) / len(lines), 2),
            accuracy=round(found.accuracy, 4),
            style=round(found.style, 4),
        )

    async def train(self, steps: float) -> tuple[list[EndedLine], bool]:
        """Attempt the training tasks, each expected to take so many steps; returns the attempts in the order of their
        ends, and whether all was learned.
        """
        cell, learning = self._cell, self._learning
        tasks = kinds.take_tasks(self._kind, "train", cell.seed, cell.episodes // cell.group)
        throttle = Throttle(
            self._client,
            self._log,
            group=cell.group,
            turns_a_step=learning.turns_a_step,
            max_version_lag=learning.max_version_lag,
            steps=steps,
        )
        lines: list[EndedLine] = []

        def ended(line: EndedLine) -> None:
            throttle.ended(line)
            lines.append(line)

        plan = RunPlan(group=cell.group, concurrency=cell.concurrency)
        harness = self._shuffled() if cell.shuffled else self._harness
        await AttemptRunner(self._client, harness, self._log, plan, admit=throttle.admit, ended=ended).run(tasks)
        return lines, await throttle.learned(PATIENCE)

    def _shuffled(self) -> Harness:
        return ShuffledOutcomes(self._harness, group=self._cell.group, seed=self._cell.seed)
