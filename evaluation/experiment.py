"""Learning with controls: the same personas talk to services that train, do not train, or train on wrong signals."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from openclaw_rl.evaluation import arm as arms
from openclaw_rl.evaluation.arm import Arm, Plan
from openclaw_rl.evaluation.conversation import sessions_needed
from openclaw_rl.evaluation.evaluate import Work
from openclaw_rl.evaluation.service import on_gpus, own_service
from openclaw_rl.evaluation.statistics import spread
from openclaw_rl.shared.chat_client import ChatClient
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.gather import gather

ARMS: Mapping[str, Mapping[str, Any]] = {
    "trained": {},
    "control": {"train": False},
    "placebo": {"judge": "openclaw_rl.evaluation.judges:Placebo"},
    "irrelevant": {"judge": "openclaw_rl.evaluation.judges:Irrelevant"},
}
"""Settings of each arm: `control` judges and does not train, `placebo` trains on shuffled rewards, `irrelevant` on
hints that have nothing to do with the answer.
"""
AT_ONCE = 2


@dataclass(frozen=True)
class Experiment:
    """Arms and their number of interactions; `settings` are the service's (method, model, batch size…)."""

    arms: Sequence[str] = tuple(ARMS)
    interactions: int = 24
    batch: int = 8
    settings: Mapping[str, str | int | float | bool] = field(default_factory=dict)

    def check(self) -> None:
        """Raise `ConfigError` for an unknown arm or a number below 1."""
        unknown = [name for name in self.arms if name not in ARMS]
        if unknown:
            raise ConfigError(f"there is no arm {', '.join(unknown)}; choose from {', '.join(ARMS)}")
        if min(self.interactions, self.batch) < 1:
            raise ConfigError("interactions and batch size are at least 1")


async def run(
    experiment: Experiment, work: Work, say: Callable[[str], None] = lambda line: None
) -> dict[str, dict[str, list[Arm]]]:
    """The arms of every persona, one a seed: `{persona: {arm: [Arm, …]}}`. Two run at a time, or one on GPUs.

    Raises `ServiceFailed`, `ChatError` and `UserError`.
    """
    experiment.check()
    gate = asyncio.Semaphore(1 if on_gpus(experiment.settings) else AT_ONCE)

    async def one(persona: str, name: str, seed: int) -> Arm:
        plan = Plan(
            seed=seed,
            interactions=experiment.interactions,
            batch=experiment.batch,
            problems=work.problems,
            glances=(work.problems + 1) // 2,
            trained=name != "control",
            persona=persona,
            habits=work.habits(persona),
            max_tokens=work.max_tokens,
        )
        settings = {**experiment.settings, "seed": seed, "batch_size": experiment.batch, **ARMS[name]}
        async with gate:
            with tempfile.TemporaryDirectory(prefix="openclaw-rl-eval-") as folder:
                async with (
                    own_service(settings, keep=Path(folder)) as service,
                    ChatClient(service.url, service.key) as client,
                ):
                    arm = await arms.run(client, plan, user=work.reader(persona))
        before, after = arm.before, arm.after
        say(
            f"{name}, {persona}, seed {seed}: style {before.style:.2f} → {after.style:.2f}, "
            f"accuracy {before.accuracy:.2f} → {after.accuracy:.2f}, {arm.version} versions"
        )
        return arm

    wanted = [(persona, name, seed) for persona in work.personas for seed in work.seeds for name in experiment.arms]
    done = await gather(*(one(*key) for key in wanted))
    runs: dict[str, dict[str, list[Arm]]] = {}
    for (persona, name, _), arm in zip(wanted, done, strict=True):
        runs.setdefault(persona, {}).setdefault(name, []).append(arm)
    return runs


def summary(runs: Mapping[str, Mapping[str, Sequence[Arm]]]) -> dict[str, Any]:
    """`{arm: {persona: …}}`: `points` are [interactions, style, accuracy, escape] with [mean, half-width] each;
    `sessions` the sessions until three first replies in a row satisfied, one a seed, null where that did not happen.
    """
    result: dict[str, Any] = {}
    for persona, groups in runs.items():
        for name, group in groups.items():
            points = []
            for number, point in enumerate(group[0].points):
                probes = [arm.points[number].probe for arm in group]
                measures = ("style", "accuracy", "escape")
                means = [spread([getattr(probe, measure) for probe in probes]) for measure in measures]
                points.append([point.interactions, *means])
            result.setdefault(name, {})[persona] = {
                "points": points,
                "sessions": [sessions_needed(arm.first_scores) for arm in group],
                "sessions_held": [len(arm.first_scores) for arm in group],
                "versions": [arm.version for arm in group],
                "late": sum(arm.late for arm in group),
                "lost_turns": sum(len(arm.lost) for arm in group),
                "user_failures": sum(arm.user_failures for arm in group),
            }
    return result
