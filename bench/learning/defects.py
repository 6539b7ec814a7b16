"""Measure the cost of known defects of other systems, on `combined` as published.

`aligned` is the method without a defect. `misaligned` shifts logprobs by one token, as padding on the wrong side or a
re-tokenized answer does. `stale` trains on each batch four batches late, with the importance ratio; `stale-uncorrected`
without it. `epochs` makes six passes over each batch with the ratio; `epochs-uncorrected` without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import torch

from openclaw_rl.learner.methods import METHODS, Method
from openclaw_rl.shared.objective.losses import sampled_logprobs
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.settings.settings import Settings

LATE = 4
EPOCHS = 6
_HERE = "bench.learning.defects:"

DEFECTS: dict[str, dict[str, str | int | float | bool]] = {
    "aligned": {},
    "misaligned": {"method": f"{_HERE}misaligned"},
    "stale": {"method": f"{_HERE}late"},
    "stale-uncorrected": {"method": f"{_HERE}late", "custom_loss": f"{_HERE}uncorrected"},
    "epochs": {"epochs": EPOCHS},
    "epochs-uncorrected": {"epochs": EPOCHS, "custom_loss": f"{_HERE}uncorrected"},
}


class Misaligned(Method, frozen=True):
    """`combined` with every logprob one token late."""

    def advantages(self, samples: Sequence[Sample]) -> Sequence[Sample]:
        """Shift the logprobs of the samples."""
        return [
            msgspec.structs.replace(sample, logprobs=(sample.logprobs[0], *sample.logprobs[:-1])) for sample in samples
        ]


class Late(Method, frozen=True):
    """`combined` that trains on the batch of four batches ago; on nothing before there is one."""

    waiting: list[Sequence[Sample]] = msgspec.field(default_factory=list)

    def advantages(self, samples: Sequence[Sample]) -> Sequence[Sample]:
        """Return the samples of four batches ago."""
        self.waiting.append(samples)
        return self.waiting.pop(0) if len(self.waiting) > LATE else []


def misaligned(_: Settings) -> Method:
    """Create `Misaligned` from `combined`."""
    return Misaligned(**msgspec.structs.asdict(METHODS["combined"]))


def late(_: Settings) -> Method:
    """Create `Late` from `combined`."""
    return Late(**msgspec.structs.asdict(METHODS["combined"]))


def uncorrected(tokens: Any) -> torch.Tensor:
    """The published advantages without a ratio: −A·log π(a) `[N]`, for tokens of any version."""
    recipe = tokens.recipe
    advantages = recipe.binary * tokens.advantages
    if tokens.teacher_log_probs is not None:
        taught = sampled_logprobs(tokens.teacher_log_probs, tokens.token_ids) - tokens.behavior_logprobs
        advantages = advantages + recipe.distill * torch.where(tokens.has_hint, taught, 0.0)
    log_probs = torch.log_softmax(tokens.logits.float(), dim=-1)
    return -advantages.detach() * sampled_logprobs(log_probs, tokens.token_ids)
