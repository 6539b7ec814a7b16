"""The `Trainer` protocol and what goes in and out of it. Backends are found by name in `shared.backends`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from openclaw_rl.shared.engine.protocol import Engine
from openclaw_rl.shared.records import Sample


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """How one step learns. Defaults are those of `rehearse` (docs/methods.md); numbers are settings of nearly the same
    name. `learner.methods` decides on `distillation` and `rewards`.

    `distillation` says how samples with hinted prompts learn from the hinted teacher, with the weight `distill`: `full`
    (reverse KL over the vocabulary), `token` (an advantage per sampled token, in one policy loss with the reward's),
    `topk` (reverse KL over K tokens and a tail) or `select` (clipped differences of the policy's likeliest tokens).
    `rewards` says which samples' rewards train (weight `binary`): those a person or an environment gave, or all.
    `anchor` weighs the forward KL to the base on anchors, `kl_base` the KL from the base on turns, `entropy` a bonus.
    `ratio_cap` truncates exp(log π − log μ).
    """

    method: str = "rehearse"
    distillation: Literal["none", "full", "token", "topk", "select"] = "full"
    rewards: Literal["none", "explicit", "all"] = "explicit"
    distill: float = 1.0
    binary: float = 1.0
    anchor: float = 1.0
    kl_base: float = 0.0
    entropy: float = 0.0
    clip_low: float = 0.2
    clip_high: float = 0.28
    ratio_cap: float = 2.0
    teacher: Literal["base", "live", "ema"] = "base"
    ema_decay: float = 0.98
    teacher_temperature: float = 1.0
    per_token_hints: bool = False
    """Of several hinted prompts each token takes the one whose likeliest `hint_overlap` tokens are most like the
    policy's own, instead of the mean of all.
    """
    hint_overlap: int = 4
    topk: int = 50
    topk_from: Literal["teacher", "student"] = "teacher"
    select_k: int = 4
    advantage_clip: float = 1.0
    custom_loss: str = ""
    """Import path or file of a loss of the user's own, in place of every other term (docs/extending.md)."""

    epochs: int = 8
    early_stop: float = 0.0
    """Passes over a batch end when no more than this share of what the teacher has to teach is left: of its distance
    from the base, KL(base ‖ teacher). 0 makes all of them.
    """
    learning_rate: float = 2e-3
    schedule: Literal["constant", "linear", "cosine", "inverse"] = "constant"
    warmup_steps: int = 0
    schedule_steps: int = 1000
    schedule_end: float = 0.1
    schedule_decay: float = 0.5
    beta1: float = 0.9
    beta2: float = 0.98
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    clip_grad: float = 1.0
    micro_batch_tokens: int = 8192

    def rate(self, step: int) -> float:
        """The learning rate of step `step` (from 0): linear warm-up, then the schedule."""
        if step < self.warmup_steps:
            return self.learning_rate * (step + 1) / (self.warmup_steps + 1)
        after = step - self.warmup_steps
        if self.schedule == "inverse":
            return self.learning_rate / (1.0 + self.schedule_decay * after)
        if self.schedule == "constant":
            return self.learning_rate
        done = min(1.0, after / max(1, self.schedule_steps - self.warmup_steps))
        falling = 1.0 - done if self.schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * done))
        return self.learning_rate * (self.schedule_end + (1.0 - self.schedule_end) * falling)


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

    async def obstacle(self) -> str:
        """Why no step can be made now, in words; "" if one can. Asked before anything is sampled for a step."""
        ...

    async def step(self, samples: Sequence[Sample], recipe: Recipe) -> StepReport:
        """Forward, backward, optimizer step(s). On `TrainerError` weights and optimizer are as before the call; on
        `TrainerAway` the same step can be made later.
        """
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
