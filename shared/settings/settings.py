"""Every setting, with its bounds and its meaning.

`shared.settings.sources` puts them together for a person; `Settings()` alone reads the environment, which is how the
supervisor hands them to its children.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator
from pydantic_settings import SettingsConfigDict

from openclaw_rl.shared.settings import aliases
from openclaw_rl.shared.settings.cloud import CloudSettings
from openclaw_rl.shared.settings.gpu import GpuSettings
from openclaw_rl.shared.settings.learning import LearningSettings
from openclaw_rl.shared.settings.model_aliases import parse_aliases
from openclaw_rl.shared.settings.turn_rules import parse_rules

PREFIX = "OPENCLAW_RL_"
FLAGS = {"model_name": "served-model-name"}
"""Settings whose flag is not their name with dashes: `--model-name` means the policy's folder elsewhere."""

EMBEDDED_POLICY = Path(__file__).resolve().parents[2] / "trainer_local" / "embedded" / "policy"


class Settings(LearningSettings, CloudSettings, GpuSettings):
    """The one settings class; `openclaw-rl doctor` prints every value and where it came from."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        extra="forbid",
        validate_default=True,
        allow_inf_nan=False,
        env_ignore_empty=True,
        str_strip_whitespace=True,
        protected_namespaces=(),
    )

    # Serving
    host: str = Field("127.0.0.1", description="Address the proxy binds; anything but loopback needs an API key")
    port: int = Field(30000, ge=0, le=65535, description="Port of the proxy; 0 takes a free one")
    api_key: str = Field(
        "", description="Key clients send as a bearer token; made and kept in the data folder by `serve` if empty"
    )
    more_api_keys: str = Field(
        "",
        description="Keys of further clients, comma-separated. Limits are for each key; what a key may do is not: each "
        "can read and delete every session, and pause learning",
    )
    model_name: str = Field(
        "policy", min_length=1, description="Model name that clients ask for; NAME@N asks for version N"
    )
    model_aliases: str = Field(
        "",
        description="Other names that clients may ask by, * for any characters: claude-*=policy, gpt-4o=policy@3; "
        "in the file a table [model_aliases] too",
    )
    max_body_bytes: int = Field(32 << 20, ge=1024, description="Largest request body")
    max_output_tokens: int = Field(1024, ge=1, description="Answer length when the client names none")
    request_timeout: float = Field(600.0, gt=0, description="Seconds one answer may take")
    key_concurrency: int = Field(256, ge=1, description="Requests answered at a time for one API key; more wait")
    dialect_concurrency: int = Field(
        64, ge=1, description="Requests answered at a time in dialects other than chat; more wait"
    )
    queue_seconds: float = Field(30.0, ge=0, description="Seconds a request may wait for its turn; then 429 or 503")
    max_sessions: int = Field(
        0, ge=0, description="Sessions active at a time; one that would begin another gets a 429; 0 sets no limit"
    )
    queue_length: int = Field(1024, ge=0, description="Requests that may wait at a time, for each limit")
    slow_client_seconds: float = Field(
        60.0,
        gt=0,
        description="Seconds a client may leave a stream unread, or take to send its request (one more for each 16 kB)",
    )
    side_model: str = Field("", description="LiteLLM model that answers side turns instead of the policy")
    side_api_base: str = Field("", description="Base URL of the side model, if not the provider's own")
    side_api_key: str = Field("", description="Key of the side model, if not in the provider's own variable")
    fallback_model: str = Field(
        "", description="LiteLLM model that answers while the engine is away; what it says is never trained on"
    )
    fallback_api_base: str = Field("", description="Base URL of the fallback model, if not the provider's own")
    fallback_api_key: str = Field("", description="Key of the fallback model, if not in the provider's own variable")
    other_model_seconds: float = Field(
        60.0, gt=0, description="Seconds the side or fallback model may take to begin its answer"
    )
    session_idle_seconds: float = Field(
        3600.0, gt=0, description="Time without a main turn or feedback after which an episode ends"
    )
    capture: bool = Field(True, description="Record turns; off serves only")
    classification_rules: str = Field(
        "",
        description="Your own rules of what is a main or a side turn, tried before the built-in ones: "
        "[[classification_rules]] tables in the file, a JSON list elsewhere (docs/classification.md)",
    )
    thinking: bool = Field(False, description="Let the policy think before it answers, where its template can")

    # Where things are
    data: Path = Field(Path("data"), description="Data folder: journal, checkpoints, logs, key")
    journal: str = Field("", description="Journal: a SQLite file; default DATA/journal.db")
    backend: str = Field(
        "embedded",
        description="Engine and trainer: embedded (on this machine), megatron (SGLang and Megatron-core on its GPUs), "
        "tinker or fireworks (with that provider); local is megatron where there are NVIDIA GPUs, else embedded, cloud "
        "the provider whose key is set",
    )
    model: str = Field(
        str(EMBEDDED_POLICY),
        description="Policy: a Hugging Face folder or hub name, with a cloud backend the provider's name of a base "
        "model; default: the one that ships",
    )
    tokenizer: str = Field("", description="Tokenizer: a folder or hub name, if not the policy's own")
    family: str = Field(
        "auto",
        description="How conversations are written: auto, template, plain or a name of docs/models.md",
    )
    engine_url: str = Field("", description="URL of the engine; default: the one that `serve` starts")
    engine_host: str = Field("127.0.0.1", description="Address the engine binds that `serve` starts")
    engine_port: int = Field(0, ge=0, le=65535, description="Port of that engine; 0 takes a free one")
    engine_max_versions: int = Field(4, ge=2, description="Versions the engine keeps in memory, the base among them")
    engine_max_batch: int = Field(32, ge=1, description="Answers the embedded engine decodes together")
    context_length: int = Field(0, ge=0, description="Context limit in tokens; 0 takes the model's own")
    device: str = Field("auto", description="Device of embedded engine and trainer: auto, cpu, cuda, cuda:N")

    # Upkeep
    audit_fraction: float = Field(
        0.02, ge=0, le=1, description="Share of turns scored again to check their logprobs; 0 checks none"
    )
    audit_tolerance: float = Field(
        0.1, gt=0, description="Turns whose logprobs an audit finds off by more (root mean square) are quarantined"
    )
    checkpoints: str = Field("", description="Folder of checkpoints; default DATA/checkpoints")
    resume: str = Field(
        "", description="Checkpoint folder that a new journal's training goes on from; default: the last commit"
    )
    keep_checkpoints: int = Field(8, ge=2, description="Checkpoints kept on disk beside live and base")
    wandb: str = Field("", description="Weights & Biases project that every step's figures go to (extra wandb)")
    tensorboard: bool = Field(False, description="Write every step's figures to DATA/tensorboard (extra tensorboard)")
    seed: int = Field(0, ge=0, description="Seed of LoRA initialisation, rehearsal choice and dropout")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="How much the processes log")

    @field_validator("data", mode="after")
    @classmethod
    def _home(cls, value: Path) -> Path:
        return value.expanduser()

    @field_validator("host", "engine_host", mode="after")
    @classmethod
    def _address(cls, value: str) -> str:
        if not value or "/" in value or any(character.isspace() for character in value):
            raise ValueError("not an address; 127.0.0.1 serves this machine, 0.0.0.0 the network")
        return value

    @field_validator(
        "engine_url",
        "judge_engine_url",
        "hint_engine_url",
        "judge_api_base",
        "hint_api_base",
        "side_api_base",
        "fallback_api_base",
        mode="after",
    )
    @classmethod
    def _url(cls, value: str) -> str:
        if value and not re.match(r"https?://[^/\s]+", value):
            raise ValueError("not a URL; it begins with http:// or https://")
        return value.rstrip("/")

    @field_validator("journal", mode="after")
    @classmethod
    def _journal(cls, value: str) -> str:
        if re.match(r"postgres(ql)?(\+\w+)?://", value):
            raise ValueError("PostgreSQL is not in this version; name a file for SQLite")
        return value

    @field_validator("api_key", "more_api_keys", mode="after")
    @classmethod
    def _key(cls, value: str) -> str:
        if not value.isascii() or any(character.isspace() for character in value):
            raise ValueError("a key is ASCII without blanks, so that it fits into an HTTP header")
        return value

    @field_validator("classification_rules", mode="after")
    @classmethod
    def _rules(cls, value: str) -> str:
        parse_rules(value)
        return value

    @field_validator("device", mode="after")
    @classmethod
    def _device(cls, value: str) -> str:
        if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", value):
            raise ValueError("not a device; choose auto, cpu, cuda or cuda:N")
        return value

    @field_validator("model_name", mode="after")
    @classmethod
    def _model_name(cls, value: str) -> str:
        if "@" in value:
            raise ValueError("NAME@N asks for version N, so the name itself holds no @")
        return value

    @field_validator("model_aliases", mode="after")
    @classmethod
    def _aliases(cls, value: str, info: ValidationInfo) -> str:
        if "model_name" in info.data:  # else it has an error of its own
            parse_aliases(value, info.data["model_name"])
        return value

    @field_validator("log_level", mode="before")
    @classmethod
    def _level(cls, value: object) -> object:
        return aliases.level(str(value))

    @property
    def api_keys(self) -> list[str]:
        """Every key that lets a client in, the first being `api_key`; none lets everybody in."""
        return [key for key in (self.api_key, *self.more_api_keys.split(",")) if key]

    @property
    def journal_path(self) -> str:
        """The journal's file."""
        return self.journal or str(self.data / "journal.db")

    @property
    def checkpoints_path(self) -> Path:
        """The folder of checkpoints, absolute."""
        return (
            Path(self.checkpoints).expanduser().resolve() if self.checkpoints else self.data.resolve() / "checkpoints"
        )

    @property
    def tokenizer_path(self) -> str:
        """The tokenizer's folder."""
        return self.tokenizer or self.model

    @property
    def model_folder(self) -> str:
        """The folder with the policy's config and template: the tokenizer's where a provider holds the model."""
        return self.model if Path(self.model).is_dir() else self.tokenizer_path


def flag_of(setting: str) -> str:
    """The flag of a setting, without its dashes."""
    return FLAGS.get(setting, setting.replace("_", "-"))


def to_environment(settings: Settings) -> dict[str, str]:
    """Every setting as `OPENCLAW_RL_*` variables, from which `Settings()` in a child process is the same again."""
    return {f"{PREFIX}{name.upper()}": str(value) for name, value in settings.model_dump().items()}


def shown(settings: Settings, name: str) -> str:
    """A value as a person may see it: keys are hidden."""
    value = getattr(settings, name)
    if name in aliases.SECRETS:
        return "(set)" if value else ""
    return ("on" if value else "off") if isinstance(value, bool) else str(value)
