"""Runs a cell: the user talks, the policy learns, held-out tasks are asked at the stops."""

from __future__ import annotations

import time

from bench.learning.cell import PROBED, SPLIT_SEEDS, Cell, Point, Result
from bench.learning.contrary import Contrary
from bench.learning.lab import Lab, lab
from bench.learning.measure import kl_from_base, style
from bench.learning.talk import Talk
from openclaw_rl.evaluation.arm import Plan, digested
from openclaw_rl.evaluation.client import ChatClient
from openclaw_rl.evaluation.evaluate import escape
from openclaw_rl.evaluation.personas import create, take
from openclaw_rl.evaluation.probe import probe

KL_PROMPTS = 32
AT_ONCE = 32
OTHER_PHRASES = 1_000_003
PATIENCE = 300.0


async def run(cell: Cell) -> Result:
    """The result of a cell, from a fresh service."""
    wall, cpu = time.perf_counter(), time.process_time()
    settings = {"seed": cell.seed % SPLIT_SEEDS["search"], **cell.settings}
    async with lab(settings) as service, ChatClient(service.url, service.key, timeout=600.0) as client:
        return await _run(cell, service, client, wall, cpu)


async def _run(cell: Cell, service: Lab, client: ChatClient, wall: float, cpu: float) -> Result:
    user = create(cell.persona, cell.seed)
    tasks = user.tasks("train", cell.seed)
    held_out = take(user, "held-out", cell.seed, cell.problems)
    talk = Talk(client, user, tasks, cell.lanes, cell.seed)
    contrary = Contrary(cell.seed)
    batch = int(service.settings.turns_a_step)
    plan = Plan(
        seed=cell.seed, batch=batch, patience=PATIENCE, trained=service.settings.train, interactions=cell.interactions
    )
    points: list[Point] = []
    late = done = 0

    async def look() -> None:
        whole = done in (0, *PROBED, cell.interactions)
        count = cell.problems if whole else cell.glances
        opposite = bool(cell.turns_about) and done > cell.turns_about
        asker = create(cell.persona, cell.seed + OTHER_PHRASES)
        found = await probe(client, held_out[:count], persona=asker, seed=cell.seed, concurrency=AT_ONCE)
        questions = [reply.question for reply in found.replies[:KL_PROMPTS]]
        kl = await kl_from_base(service, questions) if whole and done else None
        version = (await client.get("/rl/status"))["version"]["live"]
        points.append(
            Point(
                interactions=done,
                version=version,
                count=count,
                style=style(found, opposite=opposite),
                accuracy=found.accuracy,
                escape=escape(found),
                kl=kl,
                wants_opposite=opposite,
            )
        )

    await look()
    for stop in cell.stops:
        while done < stop:
            count = min(cell.lanes, stop - done)
            turned = bool(cell.turns_about) and done >= cell.turns_about
            await talk.interactions(count, contrary if turned else None)
            done += count
            if not await digested(client, plan):
                late += 1
        await look()
    versions = (await client.get("/rl/versions"))["versions"]
    states: dict[str, int] = {}
    for version in versions:
        states[version["state"]] = states.get(version["state"], 0) + 1
    return Result(
        cell=cell,
        points=points,
        versions=states,
        complaints=talk.complaints,
        seconds=time.perf_counter() - wall,
        cpu_seconds=time.process_time() - cpu,
        metrics=versions[-1]["metrics"],
        late=late,
    )
