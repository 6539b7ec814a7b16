"""Run a cell: a person talks to SmolLM2, which learns, and held-out questions are asked at the stops.

Before the first version the questions are asked to the base, whose answers are those of every arm (`base.py`).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from bench.cells.lab import Lab, lab
from bench.learning.talk import Lane
from bench.real_model import knowledge
from bench.real_model.base import BaseMeasures
from bench.real_model.cell import RealModelCell, RealModelPoint, RealModelResult
from bench.real_model.people import Elsewhere, Person
from openclaw_rl.evaluation.arm import settled
from openclaw_rl.evaluation.personas import take
from openclaw_rl.evaluation.probe import probe
from openclaw_rl.evaluation.provenance import commit
from openclaw_rl.shared.chat_client import ChatClient
from openclaw_rl.shared.gather import gather

CONCURRENCY = 32
PATIENCE = 1200.0
UNREAD = 8
"""Tokens of an answer that is not read: it takes time and teaches nothing."""
SELECTION = 7919
"""The seed's factor for the answers by which the known questions are chosen."""


async def run(cell: RealModelCell, folder: Path) -> RealModelResult:
    """Run a cell on a fresh service, in a worker process on one core; `folder` keeps the measures of the base."""
    begun = time.perf_counter()
    settings = {"model": "smollm2", "seed": cell.seed, **cell.settings}
    async with lab(settings) as service, ChatClient(service.url, service.key, timeout=600.0) as client:
        return await _Run(cell, service, client, BaseMeasures(folder, cell)).measure(begun)


class _Run:
    def __init__(self, cell: RealModelCell, service: Lab, client: ChatClient, base: BaseMeasures) -> None:
        self._cell = cell
        self._base = base
        self._service = service
        self._client = client
        self._person = (Elsewhere if cell.arm == "placebo" else Person)(cell.person, cell.seed)
        self._held_out = take(self._person, "held-out", cell.seed, cell.problems)
        self._asked = knowledge.questions(cell.known)
        self._knew: list[knowledge.KnownQuestion] = []
        self._points: list[RealModelPoint] = []

    async def measure(self, begun: float) -> RealModelResult:
        """Talk and probe; `begun` is the clock at the start. The CPU time is that of talking and learning alone."""
        cell = self._cell
        tasks = self._person.tasks("train", cell.seed)
        lanes = [
            Lane(
                self._client, self._person, tasks, f"lane {cell.seed} {number}", max_tokens=cell.answers, unread=UNREAD
            )
            for number in range(cell.lanes)
        ]
        trains = self._service.settings.learning.train
        done = late = 0
        cpu = 0.0
        for stop in cell.stops:
            talked = time.process_time()
            while done < stop:
                count = min(cell.lanes, stop - done)
                if trains:  # what is said to weights that stay as they are changes no later answer
                    await gather(*(lane.step() for lane in lanes[:count]))
                done += count
                batch = self._service.settings.learning.turns_a_step
                if trains and not await settled(self._client, batch=batch, patience=PATIENCE):
                    late += 1
            cpu += time.process_time() - talked
            await self._probe(stop)
        versions = (await self._client.get("/rl/versions"))["versions"]
        made = [one for one in versions if one["number"]]
        return RealModelResult(
            cell=cell,
            points=self._points,
            known=len(self._knew),
            versions=dict(Counter(one["state"] for one in made)),
            complaints=sum(lane.complaints for lane in lanes),
            seconds=round(time.perf_counter() - begun, 1),
            cpu_seconds=round(cpu, 1),
            steps=[round(one["metrics"]["seconds"], 1) for one in made if "seconds" in one.get("metrics", {})],
            metrics=made[-1].get("metrics", {}) if made else {},
            late=late,
            commit=commit() or "",
        )

    async def _probe(self, stop: int) -> None:
        version = (await self._client.get("/rl/status"))["version"]["live"]
        if not stop:
            seed = self._cell.seed
            found = await self._base.get(
                ("known",), lambda: knowledge.known(self._client, self._asked, SELECTION * seed)
            )
            self._knew = [self._asked[int(place)] for place in found]
        style, degenerate = await self._measure(version, ("style", self._cell.person), self._style, stop)
        kept, likelihood = await self._measure(version, ("knowledge",), self._knowledge, stop)
        self._points.append(
            RealModelPoint(
                interactions=stop,
                version=version,
                style=round(style, 4),
                degenerate=round(degenerate, 4),
                knowledge=round(kept, 4),
                likelihood=round(likelihood, 4),
            )
        )

    async def _measure(
        self, version: int, name: tuple[str, ...], ask: Callable[[int], Awaitable[Sequence[float]]], stop: int
    ) -> Sequence[float]:
        """The measures of `ask` at a stop; of the base once for all arms, under `name`."""
        if version:
            return await ask(stop)
        return await self._base.get((*name, stop), lambda: ask(stop))

    async def _style(self, stop: int) -> list[float]:
        """The shares of held-out answers in the wanted form, and of degenerate ones."""
        cell = self._cell
        found = await probe(
            self._client,
            self._held_out,
            persona=self._person,
            seed=1000 * cell.seed + stop,
            concurrency=CONCURRENCY,
            max_tokens=cell.answers,
        )
        return [found.style, 1 - found.accuracy]

    async def _knowledge(self, stop: int) -> list[float]:
        """The share of what the base knew that is answered rightly again, and the log-likelihood of texts."""
        kept = await knowledge.known(self._client, self._knew, 1000 * self._cell.seed + stop)
        likelihood = await knowledge.likelihood(self._service, knowledge.texts(self._cell.texts))
        return [len(kept) / len(self._knew), likelihood]
