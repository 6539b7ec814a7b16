"""Take the parts of `rehearse` away, one by one, to see which earn their place."""

from __future__ import annotations

import msgspec

from openclaw_rl.learner.hints import distinct
from openclaw_rl.learner.methods import METHODS, Method
from openclaw_rl.learner.rollouts.rollouts import RolloutContext
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.settings.settings import Settings

WHOLE = "whole"
_HERE = "bench.learning.ablation:"

ARMS: dict[str, dict[str, str | int | float | bool]] = {
    WHOLE: {},
    "no-anchors": {"anchors": 0},
    "no-rehearsals": {"rehearsals": 0},
    "no-memory": {"method": f"{_HERE}forgetful", "custom_rollout": f"{_HERE}practise"},
    "one-hint": {"max_hints": 1},
    "one-pass": {"epochs": 1},
    "no-early-stop": {"early_stop": 0.0},
}
"""`no-memory` teaches every turn and the rehearsals of a step by the hints of its own batch."""


def forgetful(_: Settings) -> Method:
    """Create `rehearse` without remembered hints."""
    return msgspec.structs.replace(METHODS["rehearse"], hints="own")


async def practise(context: RolloutContext) -> list[Sample]:
    """The built-in rollouts, with the hints of the batch."""
    context.hints = distinct([sample.hint for sample in context.batch if sample.hint], len(context.batch))
    return [*await context.rehearsals(), *await context.anchors()]
