"""Every setting, with its bounds and its meaning. Sources, weakest first: defaults, `openclaw-rl.toml`, environment,
flags.

Names that users of other systems have in their scripts are mapped in `shared.aliases`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from shared.trainer import Recipe

EMBEDDED_POLICY = Path(__file__).resolve().parent.parent / "trainer_local" / "embedded" / "policy"


class Settings(BaseSettings):
    """The one settings class; `openclaw-rl doctor` prints every value and where it came from."""

    model_config = SettingsConfigDict(env_prefix="OPENCLAW_RL_", extra="forbid", validate_default=True)

    # Serving
    host: str = Field("127.0.0.1", description="Address the proxy binds; anything but loopback needs an API key")
    port: int = Field(30000, ge=0, le=65535, description="Port of the proxy; 0 takes a free one")
    api_key: str = Field(
        "", description="Key clients send as a bearer token; made and kept in the data folder by `serve` if empty"
    )
    model_name: str = Field(
        "policy", min_length=1, description="Model name that clients ask for; NAME@N asks for version N"
    )
    max_body_bytes: int = Field(32 << 20, ge=1024, description="Largest request body")
    max_output_tokens: int = Field(1024, ge=1, description="Answer length when the client names none")
    request_timeout: float = Field(600.0, gt=0, description="Seconds one answer may take")
    session_idle_seconds: float = Field(3600.0, gt=0, description="Idle time after which an episode ends")
    capture: bool = Field(True, description="Record turns; off serves only")
    thinking: bool = Field(False, description="Let the policy think before it answers, where its template can")

    # Where things are
    data: Path = Field(Path("data"), description="Data folder: journal, checkpoints, logs, key")
    journal: str = Field("", description="Journal: a SQLite file; default DATA/journal.db")
    backend: str = Field("embedded", description="Engine and trainer: embedded")
    model: str = Field(
        str(EMBEDDED_POLICY), description="Policy: a Hugging Face folder or hub name; default: the one that ships"
    )
    tokenizer: str = Field("", description="Tokenizer folder, if not the policy's own")
    engine_url: str = Field("", description="URL of the engine; default: the one that `serve` starts")
    engine_host: str = Field("127.0.0.1", description="Address the embedded engine binds")
    engine_port: int = Field(0, ge=0, le=65535, description="Port of the embedded engine; 0 takes a free one")
    engine_max_versions: int = Field(4, ge=2, description="Versions the embedded engine keeps in memory")
    engine_max_batch: int = Field(32, ge=1, description="Answers the embedded engine decodes together")
    context_length: int = Field(0, ge=0, description="Context limit in tokens; 0 takes the model's own")
    device: str = Field("auto", description="Device of embedded engine and trainer: auto, cpu, cuda, cuda:N")

    # Judging
    judge: str = Field("rules", description="rules, or a LiteLLM model name, or module:Class")
    judge_votes: int = Field(1, ge=1, le=64, description="Votes m per turn of an LLM judge")
    judge_threshold: float = Field(
        0.5, ge=0.5, lt=1.0, description="Share of the valid votes that must agree (more than this), else 0"
    )
    judge_concurrency: int = Field(8, ge=1, description="Votes asked for at the same time")
    judge_timeout: float = Field(60.0, gt=0, description="Seconds one vote may take")
    judge_retries: int = Field(2, ge=0, description="Further tries of a vote that failed")
    judge_temperature: float = Field(0.6, ge=0, description="Sampling temperature of the judge")
    judge_api_base: str = Field("", description="Base URL of the judge, if not the provider's own")
    judge_api_key: str = Field("", description="Key of the judge, if not in the provider's own variable")

    # Learning
    train: bool = Field(True, description="Train; off records and judges only")
    method: Literal["rehearse", "binary"] = Field("rehearse", description="Learning method")
    batch_size: int = Field(8, ge=1, description="Judged turns a step")
    max_hints: int = Field(6, ge=1, description="Distinct remembered hints the teacher is asked under")
    rehearsals: int = Field(16, ge=0, description="Fresh rollouts on earlier prompts a step")
    anchors: int = Field(8, ge=0, description="Base rollouts on drill prompts a step")
    anchor_prompts: str = Field("", description="File of drill prompts, one a line; default: the built-in ones")
    rehearsal_max_tokens: int = Field(160, ge=1, description="Longest rehearsal answer")
    rehearsal_token_budget: int = Field(32768, ge=0, description="Prompt tokens that rehearsals of one step may cost")
    max_sample_tokens: int = Field(16384, ge=16, description="Longer turns (prompt and answer) are quarantined")
    max_version_lag: int = Field(8, ge=0, description="Older samples are quarantined as stale")
    epochs: int = Field(4, ge=1, description="Passes over a batch")
    learning_rate: float = Field(1e-3, gt=0, description="AdamW learning rate")
    beta1: float = Field(0.9, ge=0, lt=1)
    beta2: float = Field(0.98, ge=0, lt=1)
    weight_decay: float = Field(0.0, ge=0)
    clip_grad: float = Field(1.0, gt=0, description="Gradient norm limit")
    clip_low: float = Field(0.2, gt=0, lt=1, description="PPO clip below 1")
    clip_high: float = Field(0.28, gt=0, description="PPO clip above 1")
    ratio_cap: float = Field(2.0, ge=1, description="Truncation of the importance ratio")
    w_distill: float = Field(1.0, ge=0, description="Weight of the distillation term")
    w_rl: float = Field(1.0, ge=0, description="Weight of the binary term")
    w_anchor: float = Field(1.0, ge=0, description="Weight of the anchor to the base")
    teacher_temperature: float = Field(1.0, gt=0)
    lora: bool = Field(True, description="LoRA; off trains all weights")
    lora_rank: int = Field(16, ge=1)
    lora_alpha: float = Field(32.0, gt=0)
    lora_dropout: float = Field(0.0, ge=0, lt=1)
    lora_targets: str = Field("all-linear", description="Target modules, comma-separated, or all-linear")
    keep_checkpoints: int = Field(8, ge=2, description="Checkpoints kept on disk beside live and base")
    guard_max_kl: float = Field(
        2.0, gt=0, description="A candidate further from its parent (KL per token on the batch) is rejected"
    )
    seed: int = Field(0, ge=0, description="Seed of LoRA initialisation, rehearsal choice and dropout")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info")

    @property
    def journal_path(self) -> str:
        """The journal's file."""
        return self.journal or str(self.data / "journal.db")

    @property
    def tokenizer_path(self) -> str:
        """The tokenizer's folder."""
        return self.tokenizer or self.model

    def recipe(self) -> Recipe:
        """The settings a trainer's step takes."""
        return Recipe(
            method=self.method,
            epochs=self.epochs,
            learning_rate=self.learning_rate,
            beta1=self.beta1,
            beta2=self.beta2,
            weight_decay=self.weight_decay,
            clip_grad=self.clip_grad,
            clip_low=self.clip_low,
            clip_high=self.clip_high,
            ratio_cap=self.ratio_cap,
            distill=self.w_distill,
            binary=self.w_rl,
            anchor=self.w_anchor,
            teacher_temperature=self.teacher_temperature,
        )
