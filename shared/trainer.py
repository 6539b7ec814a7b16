"""The `Trainer` protocol and what goes in and out of it. Backends are found by name in `shared.registry`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from shared.engine import Engine
from shared.records import Sample


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """How one step learns. Defaults are those of `rehearse` (see docs/methods.md); every number is a setting of the
    same name.

    `distill` weighs the full-distribution reverse KL to the hinted teacher, `binary` the sampled-token PPO term of
    samples whose reward may train, `anchor` the forward KL to the base on anchor samples. `ratio_cap` truncates exp(log
    π − log μ).
    """

    method: str = "rehearse"
    epochs: int = 4
    learning_rate: float = 2e-3
    beta1: float = 0.9
    beta2: float = 0.98
    weight_decay: float = 0.0
    clip_grad: float = 1.0
    clip_low: float = 0.2
    clip_high: float = 0.28
    ratio_cap: float = 2.0
    distill: float = 1.0
    binary: float = 1.0
    anchor: float = 1.0
    teacher_temperature: float = 1.0
    micro_batch_tokens: int = 8192


class StepReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a step did. `metrics` has at least `loss/total`, `gradient/norm`, `learning_rate`, `tokens`, `seconds`; all
    finite or the step raised `TrainerError` and changed nothing.
    """

    step: int
    sample_ids: Sequence[str]
    metrics: Mapping[str, float]


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Weights, optimizer, step and random state in one folder: resuming from it is exact. `served` is what the engine
    loads.
    """

    path: str
    served: str
    step: int


class Trainer(Protocol):
    """Changes the weights. One instance, in the learner process; calls are serialised by the caller."""

    async def step(self, samples: Sequence[Sample], recipe: Recipe) -> StepReport:
        """Forward, backward, optimizer step(s). On `TrainerError` weights and optimizer are as before the call."""
        ...

    async def save(self, path: str) -> Checkpoint:
        """Write weights, optimizer, step and random state below `path`, complete and synced to disk before it
        returns.
        """
        ...

    async def restore(self, checkpoint: str | None) -> None:
        """Go back to a folder that `save` wrote; `None` is the untouched base model."""
        ...

    async def publish(self, checkpoint: Checkpoint, version: int, engine: Engine, *, live: bool) -> None:
        """Make `checkpoint` known to `engine` as `version`: with `live` new requests use it, requests in flight finish
        on the version they began with. Idempotent. A backend that can hand weights over in memory does so here; the
        default is `engine.load`.
        """
        ...

    async def export(self, path: str) -> None:
        """Write a Hugging Face folder (full weights) or PEFT adapter that other tools load."""
        ...

    async def close(self) -> None:
        """Release memory and files."""
        ...
