"""Settings of the judge, of learning and of the guard."""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from openclaw_rl.shared.hooks import Hook, is_hook
from openclaw_rl.shared.settings import aliases
from openclaw_rl.shared.settings.group import Group
from openclaw_rl.shared.settings.method_defaults import METHODS
from openclaw_rl.shared.settings.model_reference import AUTO
from openclaw_rl.shared.trainer import Recipe

GroupAdvantage = Literal["normalised", "centred", "none"]


class JudgeSettings(Group):
    """The models that score turns and write hints, and how they are asked."""

    model: str = Field(
        AUTO,
        alias="judge",
        description="Judge: auto (rules for the tiny policy and other small models, policy for larger ones, see "
        "docs/judging.md); rules; policy (the base model, on the policy's engine); engine:FOLDER (`serve` starts a "
        "second engine) or engine:FOLDER@URL (a running engine); reward-model:FOLDER (a sequence classifier); a "
        "LiteLLM model, NAME or NAME@URL; your own, module:Class or ./file.py:Class",
    )
    hint_model: str = Field(
        "", description="Model that writes hints instead of the judge: policy, engine:FOLDER or a LiteLLM model"
    )
    votes: int = Field(1, ge=1, le=64, description="Votes per turn of an LLM judge")
    threshold: float = Field(
        0.0,
        ge=0,
        le=1.0,
        alias="judge_threshold",
        description="Share of the valid votes that the most frequent score must have, else the score is 0; at 0 any "
        "share is enough. A tie scores 0",
    )
    concurrency: int = Field(8, ge=1, alias="judge_concurrency", description="Votes that run at the same time")
    timeout: float = Field(60.0, gt=0, alias="judge_timeout", description="Maximum seconds of one vote")
    temperature: float = Field(0.6, ge=0, alias="judge_temperature", description="Sampling temperature of the judge")
    max_tokens: int = Field(
        1024, ge=1, alias="judge_max_tokens", description="Maximum tokens of a vote (judge = policy or engine:FOLDER)"
    )
    prompt: str = Field(
        "", alias="judge_prompt", description="File of your own judge prompt; default: the newest built-in prompt"
    )
    step_rewards: float = Field(
        0.0,
        ge=0,
        description="Weight of the judge's score of a turn that the session's outcome (weight 1) scores too; in a "
        "group the weight of the mean vote that is added to the outcome; 0: the judge does not score such turns",
    )
    environment_hints: bool = Field(
        False,
        description="Let the judge also draw hints from what tools and environments answer in attempts of an "
        "environment; off leaves these to their rewards",
    )
    custom_reward: Hook = Field("", description="Your own reward model: module:attribute or ./file.py")


def _checkpoints(text: str) -> re.Match[str]:
    """The number and the size of the checkpoints to keep. Raises `ValueError`."""
    found = re.fullmatch(r"\s*(\d{1,6})\s*(?:,\s*(\d+(?:\.\d+)?)\s*GB\s*)?", text)
    if found is None or int(found[1]) < 2:
        raise ValueError(f"{text!r} is neither a number from 2 nor such a number and a size: 8, 20GB")
    return found


class LearningSettings(Recipe):
    """Training data, method, rollouts, checkpoints. Defaults are those of `rehearse`; `method_defaults` has others."""

    train: bool = Field(True, description="Train; off records and judges only")
    batch_size: int = Field(8, ge=1, description="Judged turns per batch")
    grad_accumulation: int = Field(1, ge=1, description="Number of batches per optimizer step")
    min_turns: int = Field(1, ge=1, description="Minimum main turns of a session; shorter sessions are not trained on")
    at_least_one: bool = Field(
        False,
        description="If no judged turn of an ended session has a score, train on the last judged turn with reward 0",
    )
    gamma: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Discount of an outcome: a turn with n later main turns gets gamma^n of it; 0 gives every turn the "
        "whole outcome",
    )
    baseline: Literal["none", "batch", "running"] = Field(
        "none", description="Value subtracted from rewards: none, the batch's mean, or a running mean"
    )
    group_advantage: GroupAdvantage = Field(
        "normalised",
        description="Advantage of a step in a group of attempts at one task: normalised subtracts the mean of the same "
        "step in all attempts and divides by the standard deviation, centred only subtracts, none takes the reward",
    )
    rehearsals: int = Field(16, ge=0, description="Rehearsals per step: fresh answers to earlier prompts (rehearse)")
    anchors: int = Field(8, ge=0, description="Anchors per step: the base's answers to drill prompts (rehearse)")
    anchor_prompts: str = Field("", description="File of drill prompts, one per line; default: a built-in list")
    rehearsal_max_tokens: int = Field(160, ge=1, description="Maximum tokens of a rehearsal's answer")
    max_sample_tokens: int = Field(
        32768,
        ge=16,
        description="Maximum tokens of a turn (prompt and answer); longer turns are quarantined. A prompt with a hint "
        "or a rollout that exceeds it is left out of its step. The rehearsal prompts of a step have the same limit for "
        "their sum",
    )
    max_version_lag: int = Field(
        8, ge=0, description="Maximum updates between a sample and the live version; older samples are quarantined"
    )
    recompute: Literal["auto"] | bool = Field(
        "auto",
        description="Recompute activations in the backward pass, which takes less memory and more time; auto: on a GPU "
        "in as few layers as its free memory allows",
    )
    offload_optimizer: bool = Field(False, description="Keep the optimizer's state in host memory between steps")
    lora: bool = Field(True, description="Train a LoRA; off trains all weights")
    lora_rank: int = Field(16, ge=1, description="LoRA rank")
    lora_alpha: float = Field(32.0, gt=0, description="LoRA scale: alpha / rank multiplies the update")
    lora_dropout: float = Field(0.0, ge=0, lt=1, description="LoRA dropout while training")
    lora_targets: str = Field(
        "all-linear",
        description="Target modules, comma-separated, or all-linear (in a vision model only its language model's)",
    )
    train_vision: bool = Field(
        False, description="Train the vision encoder too (needs lora = false); off freezes it (docs/gpu.md)"
    )
    custom_rollout: Hook = Field("", description="Your own rollouts for a step: module:attribute or ./file.py")
    custom_generate: Hook = Field("", description="Your own sampling of rollouts: module:attribute or ./file.py")
    checkpoints: str = Field("", description="Folder of checkpoints; default DATA/checkpoints")
    resume: str = Field(
        "", description="Checkpoint folder from which training starts in a new journal; default: the base"
    )
    keep_checkpoints: str = Field(
        "8",
        description="Number of newest checkpoints to keep on disk, at least 2; 8, 20GB also limits their size "
        "together; the live version's and its parent's are always kept",
    )
    report_to: str = Field(
        "",
        description="Receivers of the metrics of every step: tensorboard (DATA/tensorboard), wandb:PROJECT (Weights & "
        "Biases), or both, comma-separated; each needs the extra of the same name",
    )
    seed: int = Field(0, ge=0, description="Seed of LoRA initialisation, rehearsal choice and dropout")

    group_patience: float = Field(300.0, ge=0, exclude=True)
    max_hints: int = Field(6, ge=1, exclude=True)
    revisions: int = Field(0, ge=0, exclude=True)
    demonstrations: int = Field(0, ge=0, exclude=True)
    merge_prefixes: bool = Field(True, exclude=True)
    """No settings: the seconds after the last end of an attempt from which a group with fewer outcomes than it wanted
    waits for no more; the distinct remembered hints that the teacher is asked under; the accepted second tries, and the
    hinted base's own answers to earlier prompts, that a step of `rehearse` teaches as first answers; and whether
    prefixes that turns of a batch share are computed once in training.
    """

    @model_validator(mode="before")
    @classmethod
    def _warmup(cls, values: Any) -> Any:
        """A warm-up in judged turns, as `320 samples`, in steps."""
        number, _, unit = str(values.get("lr_warmup_steps", "")).partition(" ")
        if unit.strip() == "samples" and number.isdigit():
            turns = int(values.get("batch_size", 8)) * int(values.get("grad_accumulation", 1))
            return {**values, "lr_warmup_steps": -(-int(number) // turns)}
        return values

    @property
    def wandb(self) -> str:
        """The Weights & Biases project that gets metrics, "" for none."""
        return next((one.removeprefix("wandb:") for one in self._reports if one.startswith("wandb:")), "")

    @property
    def tensorboard(self) -> bool:
        """True if metrics go to DATA/tensorboard."""
        return "tensorboard" in self._reports

    @property
    def checkpoints_kept(self) -> int:
        """The number of newest checkpoints to keep."""
        return int(_checkpoints(self.keep_checkpoints)[1])

    @property
    def checkpoint_bytes(self) -> float:
        """The size that all checkpoints may have together; infinite without a limit."""
        size = _checkpoints(self.keep_checkpoints)[2]
        return float(size) * 1e9 if size else float("inf")

    @property
    def _reports(self) -> list[str]:
        return [one.strip() for one in self.report_to.split(",")]

    @field_validator("keep_checkpoints", mode="before")
    @classmethod
    def _keep_checkpoints(cls, value: object) -> str:
        _checkpoints(str(value))
        return str(value)

    @field_validator("report_to", mode="after")
    @classmethod
    def _report_to(cls, value: str) -> str:
        for one in filter(None, map(str.strip, value.split(","))):
            if one != "tensorboard" and not re.fullmatch(r"wandb:\S+", one):
                raise ValueError(f"{one!r} is neither tensorboard nor wandb:PROJECT")
        return value

    @field_validator("method", mode="before")
    @classmethod
    def _method(cls, value: object) -> object:
        text = str(value)
        name = aliases.method(text)
        if name in METHODS:
            return name
        if is_hook(text):
            return text
        raise ValueError(
            f"no method; choose one of {', '.join(METHODS)}, or your own as module:attribute or ./file.py:attribute"
        )

    @property
    def turns_a_step(self) -> int:
        """Judged turns that make one optimizer step."""
        return self.batch_size * self.grad_accumulation


class GuardSettings(Group):
    """The limits that a candidate must keep before it serves, and the audit of recorded logprobs."""

    enabled: bool = Field(
        True, alias="guard", description="Probe every candidate before it serves; off checks the step's metrics only"
    )
    max_kl: float = Field(
        0.5,
        gt=0,
        alias="guard_max_kl",
        description="Reject a candidate whose KL from its parent exceeds this (nats per token on the batch)",
    )
    max_kl_base: float = Field(
        2.0,
        gt=0,
        alias="guard_max_kl_base",
        description="Reject a candidate whose KL from the base exceeds this (nats per token on the probe prompts)",
    )
    max_drop: float = Field(
        0.25,
        gt=0,
        alias="guard_max_drop",
        description="Reject a candidate whose mean logprob of accepted answers is more than this below its parent's "
        "(nats per token)",
    )
    probes: str = Field(
        "", alias="guard_probes", description="JSONL file of your own probes: prompt, must, must_not (docs/guard.md)"
    )
    max_degenerate: float = Field(0.25, ge=0, le=1, alias="guard_max_degenerate", exclude=True)
    held_back: float = Field(0.125, ge=0, lt=1, alias="guard_held_back", exclude=True)
    answers: int = Field(16, ge=0, alias="guard_answers", exclude=True)
    audit_tolerance: float = Field(0.1, gt=0, exclude=True)
    """No settings: reject a candidate whose share of degenerate answers among the sampled ones (`answers`) exceeds its
    parent's by more; the share of accepted turns that is held out for the guard and never trained on; quarantine turns
    whose logprobs an audit finds off by more (root mean square).
    """
    audit_fraction: float = Field(
        0.02,
        ge=0,
        le=1,
        description="Share of turns that the audit scores again to check their logprobs; 0 audits none",
    )
