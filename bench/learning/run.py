"""Run a cell: the user talks, the policy learns, and held-out tasks are asked at the stops."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence

from bench.cells import code_digest
from bench.cells.lab import Lab, lab
from bench.learning.cell import PROBED, SPLIT_SEEDS, Cell, CurvePoint, Result
from bench.learning.talk import Contrary, Lane, Preceded
from openclaw_rl.evaluation.arm import settled
from openclaw_rl.evaluation.conversation import ANSWER_TOKENS
from openclaw_rl.evaluation.personas import BASE, Persona, create, take
from openclaw_rl.evaluation.probe import probe
from openclaw_rl.evaluation.provenance import commit
from openclaw_rl.learner.rollouts.hooks import whole_answer
from openclaw_rl.shared.chat_client import ChatClient
from openclaw_rl.shared.engine.protocol import Priority
from openclaw_rl.shared.gather import gather
from openclaw_rl.shared.messages.normalize import ChatInput
from openclaw_rl.shared.records import Sampling

KL_PROMPTS = 32
CONCURRENCY = 32
OTHER_PHRASES = 1_000_003
PATIENCE = 300.0


async def run(cell: Cell) -> Result:
    """Run a cell on a fresh service. Raises `OpenClawRLError` if the code was changed meanwhile."""
    wall, cpu = time.perf_counter(), time.process_time()
    settings = {"seed": cell.seed % SPLIT_SEEDS["search"], **cell.settings}
    async with lab(settings) as service, ChatClient(service.url, service.key, timeout=600.0) as client:
        curves, lanes, late = await _Run(cell, service, client).measure()
        versions = (await client.get("/rl/versions"))["versions"]
    code_digest.check_unchanged(cell)
    return Result(
        cell=cell,
        curves=curves,
        versions=dict(Counter(version["state"] for version in versions if version["number"])),
        complaints=sum(lane.complaints for lane in lanes),
        reactions=sum(lane.reactions for lane in lanes),
        seconds=round(time.perf_counter() - wall, 1),
        cpu_seconds=round(time.process_time() - cpu, 1),
        late=late,
        commit=commit() or "",
    )


class _Run:
    def __init__(self, cell: Cell, service: Lab, client: ChatClient) -> None:
        self._cell = cell
        self._service = service
        self._client = client
        self._curves: dict[str, list[CurvePoint]] = {person: [] for person in cell.people}

    async def measure(self) -> tuple[dict[str, list[CurvePoint]], list[Lane], int]:
        """Talk and probe; returns the curves, the lanes, and the number of waits that ran out."""
        cell, learning = self._cell, self._service.settings.learning
        lanes = [self._lanes(person) for person in cell.people]
        contrary = Contrary(cell.seed, cell.phrases)
        done = late = 0
        for stop in cell.stops:
            while done < stop:
                count = min(cell.lanes, stop - done)
                turned = contrary if cell.turns_about and done >= cell.turns_about else None
                done += count
                if not learning.train:  # talk changes no later answer of weights that stay as they are
                    continue
                await gather(*(lane.step(turned) for several in lanes for lane in several[:count]))
                if not await settled(self._client, batch=learning.turns_a_step, patience=PATIENCE):
                    late += 1
            for person in cell.people:
                self._curves[person].append(await self._probe(person, stop))
        return self._curves, [lane for several in lanes for lane in several], late

    def _lanes(self, name: str) -> list[Lane]:
        cell = self._cell
        user = self._person(name, cell.seed)
        tasks = user.tasks("train", cell.seed)
        return [
            Lane(self._client, user, tasks, f"lane {cell.seed} {number}", reacts=cell.reacts)
            for number in range(cell.lanes)
        ]

    def _person(self, name: str, seed: int) -> Persona:
        user = create(name, seed)
        return Preceded(user, self._cell.preamble) if self._cell.preamble else user

    async def _probe(self, name: str, stop: int) -> CurvePoint:
        """A point; its sampling is that of every arm at this stop, so that arms can be compared in pairs."""
        cell = self._cell
        full = stop in (0, *PROBED, cell.interactions)
        count = cell.problems if full else cell.glances
        opposite = bool(cell.turns_about) and stop > cell.turns_about
        asker = self._person(name, cell.seed + OTHER_PHRASES)
        held_out = take(asker, "held-out", cell.seed, count)
        seed = 1000 * cell.seed + stop
        found = await probe(self._client, held_out, persona=asker, seed=seed, concurrency=CONCURRENCY)
        version = (await self._client.get("/rl/status"))["version"]["live"]
        questions = [reply.question for reply in found.replies[:KL_PROMPTS]]
        return CurvePoint(
            interactions=stop,
            version=version,
            count=count,
            style=round(found.forms.get(BASE, 0) / found.count if opposite else found.style, 4),
            accuracy=round(found.accuracy, 4),
            escape=round(found.escape, 4),
            kl=round(await kl_from_base(self._service, questions), 4) if full and version else 0.0 if full else None,
            wants_opposite=opposite,
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
