"""The `Trainer` protocol and what goes in and out of it. Backends are found by name in `shared.backends`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, Self

import msgspec
from pydantic import BaseModel, ConfigDict, Field, field_validator

from openclaw_rl.shared.engine.protocol import Engine
from openclaw_rl.shared.hooks import Hook
from openclaw_rl.shared.records import Sample


class Recipe(BaseModel):
    """The part of the learning settings that a trainer takes for one step (docs/methods.md).

    The fields without a description are no settings. `learner.methods` sets `distillation`, how samples with hinted
    prompts learn from the hinted teacher with the weight `w_opd`: `full` (over the vocabulary), `token` (an advantage
    per sampled token, in one policy loss with the reward's), `topk` (over K tokens and a tail) or `select` (clipped
    differences of the policy's likeliest tokens); `divergence`, the loss of `full` and `topk`; `ratio_weighted`: each
    token of theirs counts with its importance ratio, truncated at `ratio_cap`; and `rewards`, the samples whose rewards
    train with the weight `w_rl`: those a person or an environment gave, or all. `w_anchor` weighs the forward
    KL to the base on drill prompts. `aggregation` is the mean of the loss: over the tokens of the batch (`token`), or
    over the tokens of each answer and then over the answers (`sample`). Passes over a batch end early when at most the
    share `early_stop` of the teacher's distance from the base, KL(base ‖ teacher), is left; 0 makes all passes. A
    trainer that computes gradients itself divides a batch into `minibatches`, each with about as many samples of every
    kind, and makes an update on each; providers make one a pass. `epsilon` is AdamW's.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        str_strip_whitespace=True,
        populate_by_name=True,
        protected_namespaces=(),
    )

    distillation: Literal["none", "full", "token", "topk", "select"] = Field("full", exclude=True)
    divergence: Literal["reverse", "jensen-shannon"] = Field("reverse", exclude=True)
    ratio_weighted: bool = Field(False, exclude=True)
    rewards: Literal["none", "explicit", "all"] = Field("explicit", exclude=True)
    aggregation: Literal["token", "sample"] = Field("token", exclude=True)
    w_anchor: float = Field(1.0, ge=0, exclude=True)
    minibatches: int = Field(1, ge=1, exclude=True)
    early_stop: float = Field(0.05, ge=0, lt=1, exclude=True)
    epsilon: float = Field(1e-8, gt=0, exclude=True)

    method: str = Field(
        "rehearse",
        description="Learning method: rehearse, binary, opd, combined, topk, topk-select, sdpo, follow-up; or your "
        "own as module:attribute or ./file.py:attribute",
    )
    epochs: int = Field(8, ge=1, description="Maximum number of passes over a batch")
    step_seconds: float = Field(
        0.0,
        ge=0,
        description="Maximum seconds of a step: after the first update, none begins that would end later; 0: no limit",
    )
    learning_rate: float = Field(2e-3, gt=0, description="AdamW learning rate")
    lr_schedule: str = Field(
        "constant",
        pattern=r"^(constant|inverse(:\d*\.?\d+)?|(linear|cosine)(:[1-9]\d*(:(0?\.\d+|[01](\.0*)?))?)?)$",
        description="Learning rate after warm-up: constant; linear:STEPS:END or cosine:STEPS:END, which falls to "
        "END × learning_rate at step STEPS (defaults: END 0.1, STEPS 1000); inverse:DECAY, learning_rate / (1 + DECAY "
        "· step) (default: DECAY 0.5)",
    )
    lr_warmup_steps: int = Field(
        0,
        ge=0,
        description="Steps over which the learning rate rises from 0; `320 samples` counts judged turns instead",
    )
    beta1: float = Field(0.9, ge=0, lt=1, description="AdamW decay of the mean gradient")
    beta2: float = Field(0.98, ge=0, lt=1, description="AdamW decay of the mean squared gradient")
    weight_decay: float = Field(0.0, ge=0, description="AdamW weight decay")
    clip_grad: float = Field(1.0, gt=0, description="Gradient norm limit")

    w_opd: float = Field(
        1.0, ge=0, description="Weight of the distillation term; in combined, of the teacher's advantages"
    )
    w_rl: float = Field(1.0, ge=0, description="Weight of the reward term; in combined, of the reward's advantages")
    kl_base: float = Field(0.0, ge=0, description="Weight of the KL from the base on turns; 0 disables it")
    entropy: float = Field(0.0, ge=0, description="Weight of an entropy bonus on turns; 0 disables it")
    clip_low: float = Field(0.2, gt=0, lt=1, description="PPO clip: lower bound of the ratio is 1 − clip_low")
    clip_high: float = Field(0.28, gt=0, description="PPO clip: upper bound of the ratio is 1 + clip_high")
    ratio_cap: float = Field(2.0, ge=1, description="Truncation of the importance ratio exp(log π − log μ)")
    teacher: str = Field(
        "base",
        description="Model that sees the hint: base (the original), live (the current policy), ema (its moving "
        "average); or another model with the same vocabulary, engine:FOLDER (`serve` starts its engine) or "
        "engine:FOLDER@URL (a running engine), for opd, combined, topk, topk-select and follow-up",
    )
    ema_decay: float = Field(0.98, ge=0, lt=1, description="Decay of the moving average at each step (teacher = ema)")
    teacher_temperature: float = Field(1.0, gt=0, description="Temperature of the teacher's distribution")
    hint_selection: Literal["longest", "shortest", "overlap-sequence", "overlap-token"] = Field(
        "longest",
        description="Choice among several proposed hints: by length, or by the overlap of the teacher's likeliest "
        "tokens with the policy's, per sequence or per token",
    )
    topk: int = Field(
        50,
        ge=1,
        description="Tokens per position that topk and sdpo compare one by one; all others share one tail bin",
    )
    topk_from: Literal["teacher", "student"] = Field(
        "teacher", description="Model whose likeliest tokens topk and sdpo compare: teacher (SDFT) or student (SDPO)"
    )
    select_k: int = Field(
        4,
        ge=1,
        le=64,
        description="Number of likeliest tokens per position; topk-select trains on them, and overlap selections "
        "compare them",
    )
    select_from: Literal["student", "teacher", "overlap"] = Field(
        "student",
        description="Model whose select_k likeliest tokens topk-select trains on: student (the policy before the "
        "step), teacher, or the tokens that both have (overlap)",
    )
    advantage_clip: float = Field(
        0.0,
        ge=0,
        description="Clip bound of a token's logprob difference between teacher and policy (opd, combined, follow-up, "
        "topk-select); 0: none",
    )
    custom_loss: Hook = Field(
        "", description="Your own loss in place of every term: module:attribute or ./file.py (docs/extending.md)"
    )
    micro_batch_tokens: int = Field(
        8192, ge=1, description="Tokens per forward pass in training; a longer turn is processed alone"
    )

    @field_validator("teacher", mode="after")
    @classmethod
    def _teacher(cls, value: str) -> str:
        if value not in ("base", "live", "ema") and not (value.startswith("engine:") and value[7:].strip()):
            raise ValueError("choose base, live, ema, or another model: engine:FOLDER or engine:FOLDER@URL")
        return value

    @property
    def has_other_teacher(self) -> bool:
        """True if the teacher is another model, behind an engine."""
        return self.teacher.startswith("engine:")

    @property
    def per_token_hints(self) -> bool:
        """True if each token is compared with the hint that suits it best, instead of the mean of all."""
        return self.hint_selection == "overlap-token"

    def replace(self, **changes: Any) -> Self:
        """The same recipe with some values changed, which are not checked again."""
        if unknown := changes.keys() - type(self).model_fields:
            raise TypeError(f"a recipe has no {', '.join(sorted(unknown))}")
        return self.model_copy(update=changes)

    def rate(self, step: int) -> float:
        """The learning rate of step `step` (from 0): linear warm-up, then the schedule."""
        if step < self.lr_warmup_steps:
            return self.learning_rate * (step + 1) / (self.lr_warmup_steps + 1)
        after = step - self.lr_warmup_steps
        shape, number, end = [*self.lr_schedule.split(":"), "", ""][:3]
        if shape == "constant":
            return self.learning_rate
        if shape == "inverse":
            return self.learning_rate / (1.0 + float(number or 0.5) * after)
        done = min(1.0, after / max(1, int(number or 1000) - self.lr_warmup_steps))
        falling = 1.0 - done if shape == "linear" else 0.5 * (1.0 + math.cos(math.pi * done))
        least = float(end or 0.1)
        return self.learning_rate * (least + (1.0 - least) * falling)


class StepReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a step. `metrics` has at least `loss/total`, `gradient/norm`, `learning_rate`, `tokens`, `seconds`
    and `updates`; all finite or the step raised `TrainerError` and changed nothing.
    """

    step: int
    sample_ids: Sequence[str]
    metrics: Mapping[str, float]

    @property
    def updates(self) -> int:
        """The number of optimizer steps. 0: nothing was left to learn, and the trainer is as it was before."""
        return int(self.metrics.get("updates", 1.0))


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
        """The reason why no step can be made now; "" if one can. Asked before anything is sampled for a step."""
        ...

    async def step(self, samples: Sequence[Sample], recipe: Recipe) -> StepReport:
        """Forward, backward, optimizer step(s). On `TrainerError` weights and optimizer are as before the call; on
        `TrainerAway` the same step can be made later, on `TrainerOutOfMemory` one with a shorter answer, or without it.
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
