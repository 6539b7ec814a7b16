"""Run a cell: the user talks, the policy learns, and held-out tasks are asked at the stops."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence

from bench.learning.cell import PROBED, SPLIT_SEEDS, Cell, CurvePoint, Result
from bench.learning.lab import Lab, lab
from bench.learning.talk import Contrary, Lane
from openclaw_rl.evaluation.arm import settled
from openclaw_rl.evaluation.client import ChatClient
from openclaw_rl.evaluation.conversation import ANSWER_TOKENS
from openclaw_rl.evaluation.personas import BASE, create, take
from openclaw_rl.evaluation.probe import probe
from openclaw_rl.learner.rollouts.hooks import whole_answer
from openclaw_rl.shared.engine.protocol import Priority
from openclaw_rl.shared.gather import gather
from openclaw_rl.shared.messages.normalize import ChatInput
from openclaw_rl.shared.records import Sampling

KL_PROMPTS = 32
CONCURRENCY = 32
OTHER_PHRASES = 1_000_003
PATIENCE = 300.0


async def run(cell: Cell) -> Result:
    """Run a cell on a fresh service."""
    wall, cpu = time.perf_counter(), time.process_time()
    settings = {"seed": cell.seed % SPLIT_SEEDS["search"], **cell.settings}
    async with lab(settings) as service, ChatClient(service.url, service.key, timeout=600.0) as client:
        return await _run(cell, service, client, wall, cpu)


async def _run(cell: Cell, service: Lab, client: ChatClient, wall: float, cpu: float) -> Result:
    user = create(cell.persona, cell.seed)
    tasks = user.tasks("train", cell.seed)
    held_out = take(user, "held-out", cell.seed, cell.problems)
    lanes = [Lane(client, user, tasks, f"lane {cell.seed} {number}") for number in range(cell.lanes)]
    contrary = Contrary(cell.seed)
    learning = service.settings.learning
    batch = learning.turns_a_step if learning.train else None
    points: list[CurvePoint] = []
    late = done = 0

    async def take_probe() -> None:
        full = done in (0, *PROBED, cell.interactions)
        count = cell.problems if full else cell.glances
        opposite = bool(cell.turns_about) and done > cell.turns_about
        asker = create(cell.persona, cell.seed + OTHER_PHRASES)
        found = await probe(client, held_out[:count], persona=asker, seed=cell.seed, concurrency=CONCURRENCY)
        questions = [reply.question for reply in found.replies[:KL_PROMPTS]]
        kl = await kl_from_base(service, questions) if full and done else None
        version = (await client.get("/rl/status"))["version"]["live"]
        points.append(
            CurvePoint(
                interactions=done,
                version=version,
                count=count,
                style=found.forms.get(BASE, 0) / found.count if opposite else found.style,
                accuracy=found.accuracy,
                escape=found.escape,
                kl=kl,
                wants_opposite=opposite,
            )
        )

    await take_probe()
    for stop in cell.stops:
        while done < stop:
            count = min(cell.lanes, stop - done)
            turned = bool(cell.turns_about) and done >= cell.turns_about
            await gather(*(lane.step(contrary if turned else None) for lane in lanes[:count]))
            done += count
            if not await settled(client, batch=batch, patience=PATIENCE):
                late += 1
        await take_probe()
    versions = (await client.get("/rl/versions"))["versions"]
    return Result(
        cell=cell,
        points=points,
        versions=dict(Counter(version["state"] for version in versions)),
        complaints=sum(lane.complaints for lane in lanes),
        seconds=time.perf_counter() - wall,
        cpu_seconds=time.process_time() - cpu,
        metrics=versions[-1]["metrics"],
        late=late,
    )


async def kl_from_base(lab: Lab, questions: Sequence[str]) -> float:
    """Estimate KL(policy ‖ base) in nats a token on fresh answers: mean log π − log base over tokens sampled from π."""

    async def one(question: str) -> tuple[float, int]:
        chat = ChatInput(messages=[{"role": "user", "content": question}], tools=[], tools_json=b"")
        prompt = list(lab.prompter.render(chat).ids())
        sampling = Sampling(max_tokens=ANSWER_TOKENS, stop_ids=lab.prompter.own_stop_ids)
        answer = await whole_answer(lab.engine, prompt, sampling, priority=Priority.AUDIT)
        base = await lab.engine.score(prompt, list(answer.ids), version=0)
        return math.fsum(answer.logprobs) - math.fsum(base.logprobs), len(answer.ids)

    found = await gather(*(one(question) for question in questions))
    return math.fsum(difference for difference, _ in found) / max(1, sum(count for _, count in found))
