"""One arm of an experiment: a persona talks to a service, with held-out probes along the way.

People read and type slower than the machine trains, so after every batch of interactions the arm waits (bounded) until
the service has judged and learned. An arm without training has the same conversations and waits for judging only.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from openclaw_rl.evaluation.conversation import ANSWER_TOKENS, Interaction, converse
from openclaw_rl.evaluation.personas import create, take
from openclaw_rl.evaluation.probe import Probe, probe
from openclaw_rl.evaluation.user import BuiltInUser, User, UserError
from openclaw_rl.shared.chat_client import ChatClient, ChatError

POLL_SECONDS = 0.2
MOST_USER_FAILURES = 3


@dataclass(frozen=True)
class Plan:
    """The work of an arm. `batch`: interactions between two waits and probes (the service's batch size). `problems`:
    held-out tasks before and after, of which `glances` are probed in between. `patience`: seconds that one wait for the
    learner may take. `habits`: further arguments of the persona.
    """

    seed: int
    interactions: int = 32
    batch: int = 8
    problems: int = 100
    glances: int = 50
    patience: float = 300.0
    trained: bool = True
    persona: str = "student"
    habits: Mapping[str, Any] = field(default_factory=dict)
    max_tokens: int = ANSWER_TOKENS


@dataclass(frozen=True)
class Point:
    """A probe after so many interactions, at so many published versions."""

    interactions: int
    version: int
    probe: Probe


@dataclass
class Arm:
    """The result of an arm; also its state while it runs.

    `turns` are the ids of all complete answers (so they were acknowledged), `lost` those that the service does not
    know afterwards. `late` counts waits that ran out, `retries` repeated requests. `first_scores` are the scores of the
    first replies, one per session, in order; `user_failures` counts the sessions that ended with a failure of the user.
    """

    plan: Plan
    points: list[Point] = field(default_factory=list)
    interactions: list[Interaction] = field(default_factory=list)
    turns: list[str] = field(default_factory=list)
    version: int = 0
    late: int = 0
    lost: list[str] = field(default_factory=list)
    retries: int = 0
    first_scores: list[float] = field(default_factory=list)
    user_failures: int = 0
    doing: str = ""

    @property
    def before(self) -> Probe:
        """The first probe."""
        return self.points[0].probe

    @property
    def after(self) -> Probe:
        """The last one."""
        return self.points[-1].probe


async def run(
    client: ChatClient, plan: Plan, *, user: User | None = None, changed: Callable[[Arm], None] = lambda arm: None
) -> Arm:
    """Run an arm against a service; `changed` is called with every new state, `user` reads and scores instead of the
    persona.
    """
    arm = Arm(plan)
    persona = create(plan.persona, plan.seed, **plan.habits)
    rater = user or BuiltInUser(persona)
    held_out = take(persona, "held-out", plan.seed, plan.problems)

    def show(doing: str) -> None:
        arm.doing = doing
        arm.retries = client.retries
        changed(arm)

    async def look(count: int) -> None:
        show("probing")
        # The same questions, word by word, at every point of every arm of a seed.
        asking = create(plan.persona, plan.seed + 1_000_003, **plan.habits)
        result = await probe(
            client, held_out[:count], persona=asking, user=user, seed=plan.seed, max_tokens=plan.max_tokens
        )
        arm.points.append(Point(len(arm.interactions), arm.version, result))
        show("talking")

    async def heard(interaction: Interaction) -> None:
        arm.interactions.append(interaction)
        show("talking")
        if len(arm.interactions) % plan.batch and len(arm.interactions) < plan.interactions:
            return
        show("learning" if plan.trained else "judging")
        if not await settled(client, batch=plan.batch if plan.trained else None, patience=plan.patience):
            arm.late += 1
        arm.version = (await client.get("/rl/status"))["version"]["live"]
        await look(plan.problems if len(arm.interactions) >= plan.interactions else plan.glances)

    await look(plan.problems)
    for task in persona.tasks("train", plan.seed):
        left = plan.interactions - len(arm.interactions)
        if left <= 0:
            break
        try:
            conversation = await converse(
                client, persona, task, most=min(2, left), user=user, max_tokens=plan.max_tokens, heard=heard
            )
            arm.first_scores.append(await rater.score(conversation.question, conversation.replies[0].text))
        except UserError:
            arm.user_failures += 1
            if arm.user_failures > max(MOST_USER_FAILURES, len(arm.first_scores)):
                raise
            continue
        arm.turns += [reply.turn_id for reply in conversation.replies]
    show("checking")
    arm.lost = await missing(client, arm.turns)
    show("done")
    return arm


async def settled(client: ChatClient, *, batch: int | None, patience: float) -> bool:
    """Wait until nothing is unjudged, less than a batch is ready (or the learner cannot begin with it) and no candidate
    waits to be published; False if `patience` (seconds) ran out. `batch`: ready turns that begin a step, 0 if unknown,
    `None` without training.
    """
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        status: dict[str, Any] = await client.get("/rl/status")
        backlog = status["backlog"]
        if backlog["unjudged"] == 0 and (batch is None or backlog["ready"] < batch or _waits(status)):
            versions = (await client.get("/rl/versions"))["versions"]
            if all(version["state"] != "candidate" for version in versions):
                return True
        await asyncio.sleep(POLL_SECONDS)
    return False


def _waits(status: Mapping[str, Any]) -> bool:
    """True if the learner does not train, or reports that all ready turns together cannot begin a step ("3 of 8", "2
    of 8, 9 with those that do not count", "8 samples wait").
    """
    if status.get("training") in ("off", "paused"):
        return True
    learner = status.get("processes", {}).get("learner", {}).get("detail") or {}
    waiting = str(learner.get("state", "")).startswith("waiting for")
    detail, ready = str(learner.get("detail", "")), status["backlog"]["ready"]
    return waiting and (detail.startswith(f"{ready} ") or f", {ready} with " in detail)


async def missing(client: ChatClient, turns: Sequence[str]) -> list[str]:
    """The acknowledged turns that the service does not know."""
    lost = []
    for turn in turns:
        try:
            await client.get(f"/rl/turns/{turn}")
        except ChatError as error:
            if error.status != 404:
                raise
            lost.append(turn)
    return lost
