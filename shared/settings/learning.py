"""Settings of the judge, of learning and of the guard; the rest is in `shared.settings.settings`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings

from openclaw_rl.shared.hooks import is_hook
from openclaw_rl.shared.settings import aliases
from openclaw_rl.shared.settings.cloud import cloud_defaults
from openclaw_rl.shared.settings.method_defaults import METHODS, method_defaults
from openclaw_rl.shared.trainer import Recipe


class LearningSettings(BaseSettings):
    """What is learned from, and how. Defaults are those of `rehearse`; other methods have some of their own."""

    # Judging
    judge: str = Field(
        "rules",
        description="rules; policy (the base model that is served); engine:FOLDER (a second engine of its own); "
        "reward-model:FOLDER (a sequence classifier); a LiteLLM model name; module:Class or ./file.py:Class",
    )
    judge_engine_url: str = Field(
        "", description="URL of a running engine for judge = engine:FOLDER; default: the one that `serve` starts"
    )
    hint_model: str = Field(
        "", description="Model that proposes hints, if not the judge: policy, engine:FOLDER or a LiteLLM model name"
    )
    hint_engine_url: str = Field(
        "", description="URL of a running engine for hint_model = engine:FOLDER; default: the one that `serve` starts"
    )
    votes: int = Field(1, ge=1, le=64, description="Votes m per turn of an LLM judge")
    judge_threshold: float = Field(
        0.5, ge=0.5, le=1.0, description="Share of the valid votes that must agree, and more than half of them, else 0"
    )
    judge_concurrency: int = Field(8, ge=1, description="Votes asked for at the same time")
    judge_timeout: float = Field(60.0, gt=0, description="Seconds one vote may take")
    judge_retries: int = Field(2, ge=0, description="Further tries of a vote that failed")
    judge_temperature: float = Field(0.6, ge=0, description="Sampling temperature of the judge")
    judge_max_tokens: int = Field(1024, ge=1, description="Longest vote of a judge that is asked here")
    judge_api_base: str = Field("", description="Base URL of the judge, if not the provider's own")
    judge_api_key: str = Field("", description="Key of the judge, if not in the provider's own variable")
    hint_api_base: str = Field(
        "", description="Base URL of the hint model; default: the judge's where both have one provider, else its own"
    )
    hint_api_key: str = Field("", description="Key of the hint model; default likewise")
    judge_prompt: str = Field("", description="File of a judge prompt of your own; default: the newest built-in one")
    hint_selection: Literal["longest", "shortest", "overlap-sequence", "overlap-token"] = Field(
        "longest", description="Which of several proposed hints is taken"
    )
    hint_overlap: int = Field(4, ge=1, le=64, description="Likeliest tokens compared by the overlap selections")
    step_rewards: float = Field(
        0.0, ge=0, description="Weight of the judge's score of each step beside an outcome; 0 asks no judge there"
    )

    # Learning
    train: bool = Field(True, description="Train; off records and judges only")
    method: str = Field(
        "rehearse", description=f"Learning method: {', '.join(METHODS)}; or module:attribute or ./file.py:attribute"
    )
    batch_size: int = Field(8, ge=1, description="Judged turns a batch")
    grad_accumulation: int = Field(1, ge=1, description="Batches whose gradients make one step")
    min_turns: int = Field(1, ge=1, description="Least main turns of a session that is trained on")
    at_least_one: bool = Field(
        False,
        description="A session whose turns were all left out by the judge gives its last judged turn, with reward 0",
    )
    gamma: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Discount of an outcome over the turns before it; 0 gives every turn of the session all of it",
    )
    max_hints: int = Field(6, ge=1, description="Distinct remembered hints the teacher is asked under (rehearse)")
    rehearsals: int = Field(16, ge=0, description="Fresh rollouts on earlier prompts a step (rehearse)")
    anchors: int = Field(8, ge=0, description="Base rollouts on drill prompts a step (rehearse)")
    anchor_prompts: str = Field("", description="File of drill prompts, one a line; default: the built-in ones")
    rehearsal_max_tokens: int = Field(160, ge=1, description="Longest rehearsal answer")
    rehearsal_token_budget: int = Field(32768, ge=0, description="Prompt tokens that rehearsals of one step may cost")
    max_sample_tokens: int = Field(32768, ge=16, description="Longer turns (prompt and answer) are quarantined")
    max_version_lag: int = Field(8, ge=0, description="Older samples are quarantined as stale")
    w_opd: float = Field(1.0, ge=0, description="Weight of the distillation term")
    w_rl: float = Field(1.0, ge=0, description="Weight of the reward's term")
    w_anchor: float = Field(1.0, ge=0, description="Weight of the anchor to the base")
    kl_base: float = Field(0.0, ge=0, description="Weight of the KL from the base on turns; 0 leaves it out")
    entropy: float = Field(0.0, ge=0, description="Weight of an entropy bonus on turns; 0 leaves it out")
    baseline: Literal["none", "batch", "running"] = Field(
        "none", description="What is taken off rewards: nothing, the batch's mean, or a running mean"
    )
    clip_low: float = Field(0.2, gt=0, lt=1, description="PPO clip below 1")
    clip_high: float = Field(0.28, gt=0, description="PPO clip above 1")
    ratio_cap: float = Field(2.0, ge=1, description="Truncation of the importance ratio")
    teacher: Literal["base", "live", "ema"] = Field(
        "base", description="Who sees the hint: the untouched base, the policy as it is, or its moving average"
    )
    ema_decay: float = Field(0.98, ge=0, lt=1, description="Decay of the moving average at each step (teacher = ema)")
    teacher_temperature: float = Field(1.0, gt=0, description="Temperature of the teacher's distribution")
    topk: int = Field(50, ge=1, description="Tokens a position that topk compares one by one; a tail holds the rest")
    topk_from: Literal["teacher", "student"] = Field(
        "teacher", description="Whose likeliest tokens topk compares: teacher (SDFT) or student (SDPO)"
    )
    select_k: int = Field(4, ge=1, description="Tokens a position that topk-select moves")
    advantage_clip: float = Field(1.0, gt=0, description="Bound of a token's difference to the teacher (topk-select)")

    # Optimizer
    epochs: int = Field(8, ge=1, description="Passes over a batch, at most")
    early_stop: float = Field(
        0.05,
        ge=0,
        lt=1,
        description="Passes over a batch end when no more than this share of what the teacher has to teach is left; "
        "0 makes all of them",
    )
    learning_rate: float = Field(2e-3, gt=0, description="AdamW learning rate")
    lr_schedule: Literal["constant", "linear", "cosine", "inverse"] = Field(
        "constant",
        description="How the learning rate falls after warm-up: over lr_steps, or as 1 / (1 + lr_decay · step)",
    )
    lr_warmup_steps: int = Field(0, ge=0, description="Steps over which the learning rate rises from 0")
    lr_warmup_samples: int = Field(0, ge=0, description="The same, counted in judged turns")
    lr_steps: int = Field(1000, ge=1, description="Steps after which linear and cosine have reached lr_end")
    lr_end: float = Field(0.1, ge=0, le=1, description="Share of the learning rate that linear and cosine end at")
    lr_decay: float = Field(0.5, ge=0, description="How fast inverse falls")
    beta1: float = Field(0.9, ge=0, lt=1, description="AdamW decay of the mean gradient")
    beta2: float = Field(0.98, ge=0, lt=1, description="AdamW decay of the mean squared gradient")
    epsilon: float = Field(1e-8, gt=0, description="AdamW epsilon")
    weight_decay: float = Field(0.0, ge=0, description="AdamW weight decay")
    clip_grad: float = Field(1.0, gt=0, description="Gradient norm limit")
    micro_batch_tokens: int = Field(
        8192, ge=64, description="Tokens that go through the model at once in training; one longer turn goes alone"
    )
    merge_prefixes: bool = Field(True, description="Compute what the turns of a batch share once in training")
    recompute: Literal["auto"] | bool = Field(
        "auto",
        description="Compute activations anew in the backward pass: less memory, slower; auto does on a GPU",
    )
    offload_optimizer: bool = Field(False, description="Keep the optimizer's state in host memory between steps")
    lora: bool = Field(True, description="LoRA; off trains all weights")
    lora_rank: int = Field(16, ge=1, description="LoRA rank")
    lora_alpha: float = Field(32.0, gt=0, description="LoRA scale: alpha / rank multiplies the update")
    lora_dropout: float = Field(0.0, ge=0, lt=1, description="LoRA dropout while training")
    lora_targets: str = Field(
        "all-linear",
        description="Target modules, comma-separated, or all-linear; of a model that sees, those of the language model",
    )
    train_vision: bool = Field(
        False, description="With lora = false train the vision encoder too; off freezes it (docs/gpu.md)"
    )

    # Hooks
    custom_loss: str = Field("", description="Loss of your own: module:attribute or ./file.py (docs/extending.md)")
    custom_reward: str = Field("", description="Reward model of your own: module:attribute or ./file.py")
    custom_rollout: str = Field("", description="Rollouts of your own beside a batch: module:attribute or ./file.py")
    custom_generate: str = Field("", description="How a rollout is sampled: module:attribute or ./file.py")
    hook_timeout: float = Field(
        600.0, gt=0, description="Seconds that custom_rollout, or one answer of custom_generate, may take"
    )

    # Guard
    guard: bool = Field(True, description="Probe every candidate before it serves; off checks the step's figures alone")
    guard_max_kl: float = Field(
        0.5, gt=0, description="A candidate further from its parent (KL per token on the batch) is rejected"
    )
    guard_max_kl_base: float = Field(
        2.0, gt=0, description="A candidate further from the base (KL per token on probe prompts) is rejected"
    )
    guard_max_drop: float = Field(
        0.25,
        gt=0,
        description="A candidate under which the accepted answers that were held back are less likely than under its "
        "parent by more (nats a token) is rejected",
    )
    guard_max_degenerate: float = Field(
        0.25,
        ge=0,
        le=1,
        description="A candidate whose sampled answers degenerate more often than its parent's by more than this share "
        "is rejected",
    )
    guard_held_back: float = Field(
        0.125, ge=0, lt=1, description="Share of the accepted turns that is kept for the guard and never trained on"
    )
    guard_answers: int = Field(16, ge=0, description="Answers sampled from a candidate to look for degeneration")
    guard_probes: str = Field("", description="JSONL file of your own probes: prompt, must, must_not (docs/guard.md)")

    @model_validator(mode="before")
    @classmethod
    def _of_the_method(cls, values: Any) -> Any:
        """What nobody chose is the method's own, or the backend's."""
        if isinstance(values, dict):
            chosen = values.get("method", cls.model_fields["method"].default)
            return {
                **method_defaults(aliases.method(chosen)),
                **cloud_defaults(values.get("backend"), chosen),
                **values,
            }
        return values

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

    @field_validator("custom_loss", "custom_reward", "custom_rollout", "custom_generate", mode="after")
    @classmethod
    def _hook(cls, value: str) -> str:
        if value and not is_hook(value):
            raise ValueError("neither module:attribute nor a file such as ./custom_loss.py")
        return value

    @property
    def turns_a_step(self) -> int:
        """Judged turns that make one optimizer step."""
        return self.batch_size * self.grad_accumulation

    def recomputes(self, *, on_gpu: bool) -> bool:
        """Whether activations are computed anew where the trainer is on a GPU, or on a CPU."""
        return on_gpu if self.recompute == "auto" else self.recompute

    def recipe(self) -> Recipe:
        """The settings a trainer's step takes; `learner.methods` decides which of its terms count."""
        return Recipe(
            method=self.method,
            epochs=self.epochs,
            early_stop=self.early_stop,
            learning_rate=self.learning_rate,
            schedule=self.lr_schedule,
            warmup_steps=max(self.lr_warmup_steps, -(-self.lr_warmup_samples // self.turns_a_step)),
            schedule_steps=self.lr_steps,
            schedule_end=self.lr_end,
            schedule_decay=self.lr_decay,
            beta1=self.beta1,
            beta2=self.beta2,
            epsilon=self.epsilon,
            weight_decay=self.weight_decay,
            clip_grad=self.clip_grad,
            clip_low=self.clip_low,
            clip_high=self.clip_high,
            ratio_cap=self.ratio_cap,
            distill=self.w_opd,
            binary=self.w_rl,
            anchor=self.w_anchor,
            kl_base=self.kl_base,
            entropy=self.entropy,
            teacher=self.teacher,
            ema_decay=self.ema_decay,
            teacher_temperature=self.teacher_temperature,
            per_token_hints=self.hint_selection == "overlap-token",
            hint_overlap=self.hint_overlap,
            topk=self.topk,
            topk_from=self.topk_from,
            select_k=self.select_k,
            advantage_clip=self.advantage_clip,
            custom_loss=self.custom_loss,
            micro_batch_tokens=self.micro_batch_tokens,
        )
