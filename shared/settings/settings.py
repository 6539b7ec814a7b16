"""Every setting in its group, with its bounds and its meaning; `shared.settings.sources` reads them for a person.

A setting has a flat name too, unique over all groups: in files, variables, flags and in `Settings(batch_size=4)`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator
from pydantic.fields import FieldInfo

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.logs import LogFormat
from openclaw_rl.shared.settings import aliases
from openclaw_rl.shared.settings.cloud import CLOUDS, CloudSettings
from openclaw_rl.shared.settings.gpu import GpuSettings
from openclaw_rl.shared.settings.group import Address, Group, Key, Url
from openclaw_rl.shared.settings.learning import GuardSettings, JudgeSettings, LearningSettings
from openclaw_rl.shared.settings.method_defaults import method_defaults
from openclaw_rl.shared.settings.model_aliases import parse_aliases
from openclaw_rl.shared.settings.named_models import TINY, model_path
from openclaw_rl.shared.settings.presets import Preset, find_preset, preset_values
from openclaw_rl.shared.settings.turn_rules import parse_rules

PREFIX = "OPENCLAW_RL_"
FLAGS = {"model_name": "served-model-name"}
"""Settings whose flag is not their name with dashes: `--model-name` means the policy's folder elsewhere."""

EMBEDDED_POLICY = TINY.path


class ServeSettings(Group):
    """Address, keys and data of the service, and what it does with requests."""

    host: Address = Field(
        "127.0.0.1", description="Address that the proxy binds; an address other than loopback needs a key"
    )
    port: int = Field(30000, ge=0, le=65535, description="Port of the proxy; 0 chooses a free port")
    api_key: Key = Field(
        "",
        description="Keys that clients may send as a bearer token, comma-separated; if empty, `serve` creates one in "
        "the data folder. They chat, send feedback and outcomes and read /rl/status (docs/routes.md); key_concurrency "
        "applies to each key",
    )
    admin_key: Key = Field(
        "",
        description="Key of the person who operates the service, for the commands and the dashboard: it may do "
        "everything; if empty, `serve` creates one in the data folder. The same as api_key: one key for everything",
    )
    dashboard: bool = Field(True, description="Serve the dashboard at /ui/, for those who sign in (docs/routes.md)")
    public_hosts: str = Field(
        "",
        description="Names by which the service is reached, comma-separated, if those are not its address: that of a "
        "reverse proxy; requests to other names are refused",
    )
    model_name: str = Field(
        "policy", min_length=1, description="Model name that clients request; NAME@N requests version N"
    )
    model_aliases: str = Field(
        "",
        description="Other names of the policy and of its versions (* matches any characters): claude-*=policy, "
        "gpt-4o=policy@3; in the file also a table [model_aliases]",
    )
    strict_model_names: bool = Field(
        False, description="Refuse names that are neither model_name nor an alias; off answers every name by the policy"
    )
    data: Path = Field(Path("data"), description="Data folder: journal, checkpoints, logs, key")
    capture: bool = Field(True, description="Record turns; off answers requests without recording them")
    serve_without_journal: bool = Field(
        False,
        description="Answer while the journal cannot be written (full disk, locked): those turns are not recorded and "
        "train nothing; off refuses them with a 507 (docs/reliability.md)",
    )
    thinking: bool = Field(False, description="Let the policy reason before it answers, if its template supports it")
    max_output_tokens: int = Field(1024, ge=1, description="Maximum tokens of an answer if the request sets no limit")
    request_timeout: float = Field(
        600.0,
        gt=0,
        description="Maximum seconds of one answer, one call of custom_rollout or custom_generate, or one training "
        "request to the provider",
    )
    key_concurrency: int = Field(
        256, ge=1, description="Requests answered at the same time for one API key; further requests wait"
    )
    max_sessions: int = Field(
        0,
        ge=0,
        description="Maximum number of active sessions; a request that would begin another gets a 429; 0 sets no limit",
    )
    session_idle_seconds: float = Field(
        3600.0, gt=0, description="Seconds without a main turn or feedback after which an episode ends"
    )
    keep_days: float = Field(
        0.0, ge=0, description="Days after which turns are forgotten, with all that was said about them; 0 keeps them"
    )
    side_model: str = Field(
        "", description="LiteLLM model, NAME or NAME@URL, that answers side turns instead of the policy"
    )
    fallback_model: str = Field(
        "",
        description="LiteLLM model, NAME or NAME@URL, that answers while the engine is unavailable; its answers are "
        "never trained on",
    )
    classification_rules: str = Field(
        "",
        description="Your own rules for main and side turns, tried before the built-in ones: "
        "[[classification_rules]] tables in the file, a JSON list elsewhere (docs/classification.md)",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Log level of all processes")
    log_format: LogFormat = Field(
        "plain",
        description="Log lines of all processes: plain, or json with the ids of turn, session and version "
        "(docs/metrics.md)",
    )

    @field_validator("data", mode="after")
    @classmethod
    def _home(cls, value: Path) -> Path:
        return value.expanduser()

    @field_validator("classification_rules", mode="after")
    @classmethod
    def _rules(cls, value: str) -> str:
        parse_rules(value)
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
        """Every key that lets a client in; without any, every client is let in."""
        return [key for key in self.api_key.split(",") if key]

    @property
    def key(self) -> str:
        """The first of the keys, "" without any."""
        return next(iter(self.api_keys), "")

    @property
    def journal_path(self) -> str:
        """The journal's file."""
        return str(self.data / "journal.db")


class EngineSettings(Group):
    """The policy, and the engine that serves it."""

    backend: str = Field(
        "embedded",
        description="Engine and trainer: embedded (on this machine), megatron (SGLang and Megatron-core on this "
        "machine's GPUs), tinker or fireworks (at that provider); local is megatron if there are NVIDIA GPUs, else "
        "embedded; cloud is the provider whose key is set",
    )
    model: str = Field(
        str(EMBEDDED_POLICY),
        description="Policy: smollm2 or tiny (docs/models.md), a Hugging Face folder or hub name; with a cloud backend "
        "the provider's name of a base model",
    )
    tokenizer: str = Field("", description="Tokenizer: a folder or hub name, if not the policy's own")
    family: str = Field(
        "auto",
        description="Prompt format: auto, template, plain, or a family of docs/models.md",
    )
    tools: Literal["auto", "template", "words", "refuse"] = Field(
        "auto",
        description="Format of tools: template (the model's own), words (in the system text, for any model), refuse, "
        "or auto: template if it has tools and answers can be parsed, else words",
    )
    temperature: Literal["auto"] | Annotated[float, Field(ge=0, le=2)] = Field(
        "auto",
        description="Sampling temperature of requests that name none, and of rehearsals; auto: the model's own "
        "(generation_config.json), else 1",
    )
    context_length: int = Field(0, ge=0, description="Context limit in tokens; 0 uses the model's limit")
    device: str = Field(
        "auto",
        description="Device of the embedded engine and of the trainer: auto, cpu, cuda, cuda:N",
    )
    url: Url = Field("", alias="engine_url", description="URL of a running engine; default: `serve` starts one")
    host: Address = Field(
        "127.0.0.1", alias="engine_host", description="Address that the engine started by `serve` binds"
    )
    port: int = Field(
        0, ge=0, le=65535, alias="engine_port", description="Port of the engine started by `serve`; 0: a free port"
    )
    max_versions: int = Field(4, ge=2, alias="engine_max_versions", exclude=True)
    """No setting: versions the engine keeps in memory, including the base."""

    @field_validator("model", mode="after")
    @classmethod
    def _named(cls, value: str) -> str:
        try:
            return model_path(value)
        except ConfigError as error:
            raise ValueError(str(error)) from error

    @field_validator("device", mode="after")
    @classmethod
    def _device(cls, value: str) -> str:
        if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", value):
            raise ValueError("not a device; choose auto, cpu, cuda or cuda:N")
        return value

    @property
    def is_cloud(self) -> bool:
        """True if a provider holds the weights, so that conversations are sent there."""
        return self.backend in (*CLOUDS, "cloud")

    @property
    def tokenizer_path(self) -> str:
        """The tokenizer's folder."""
        return self.tokenizer or self.model

    @property
    def model_folder(self) -> str:
        """The folder with the policy's config and template: the tokenizer's where a provider holds the model."""
        return self.model if Path(self.model).is_dir() else self.tokenizer_path


def preset_of(values: Mapping[str, Any]) -> Preset | None:
    """The preset for settings by their flat names; `None` for the tiny policy."""
    if values.get("backend") in (*CLOUDS, "cloud"):
        return find_preset(str(values.get("model", "")), lora=True, backend="cloud")
    if not values.get("model"):
        return None
    return find_preset(str(values["model"]), lora=aliases.switch(str(values.get("lora", True))) != "false")


def usual_values(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The defaults of method, model and backend in settings by their flat names: those of the method, and before them
    the preset's.
    """
    method = aliases.method(values.get("method", SETTINGS["method"].field.default))
    names = str(values.get("model", "")), str(values.get("tokenizer", ""))
    return {**method_defaults(method), **preset_values(preset_of(values), method, *names)}


class Settings(BaseModel):
    """All settings, in groups. `Settings(batch_size=4)` takes flat names, and tables of groups."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    serve: ServeSettings = ServeSettings()
    engine: EngineSettings = EngineSettings()
    judge: JudgeSettings = JudgeSettings()
    learning: LearningSettings = LearningSettings()
    guard: GuardSettings = GuardSettings()
    cloud: CloudSettings = CloudSettings()
    gpu: GpuSettings = GpuSettings()

    def __init__(self, **values: Any) -> None:
        """Unset settings take the defaults of method, model and backend. Raises pydantic's `ValidationError`."""
        flat = flatten(values)
        chosen = {**usual_values(flat), **flat}
        grouped: dict[str, Any] = {}
        for name, value in chosen.items():
            if name in FIELDS:
                grouped.setdefault(FIELDS[name].group, {})[name] = value
            else:
                grouped[name] = value
        super().__init__(**grouped)

    def value(self, name: str) -> Any:
        """The value of a field by its flat name."""
        group, attribute, _ = FIELDS[name]
        return getattr(getattr(self, group), attribute)

    def flat(self) -> dict[str, Any]:
        """Every setting by its flat name."""
        return {name: self.value(name) for name in SETTINGS}

    def replace(self, **changes: Any) -> Settings:
        """The same settings with some of them, by flat name, at other values, which are not checked again."""
        groups: dict[str, dict[str, Any]] = {}
        for name, value in changes.items():
            group, attribute, _ = FIELDS[name]
            groups.setdefault(group, {})[attribute] = value
        return self.model_copy(
            update={group: getattr(self, group).model_copy(update=values) for group, values in groups.items()}
        )

    @property
    def checkpoints_path(self) -> Path:
        """The folder of checkpoints, absolute."""
        chosen = self.learning.checkpoints
        return Path(chosen).expanduser().resolve() if chosen else self.serve.data.resolve() / "checkpoints"


class Setting(NamedTuple):
    """A setting: its group and its attribute there."""

    group: str
    attribute: str
    field: FieldInfo


FIELDS: Mapping[str, Setting] = {
    field.alias or attribute: Setting(group, attribute, field)
    for group, settings in Settings.model_fields.items()
    for attribute, field in settings.annotation.model_fields.items()  # type: ignore[union-attr]
}
"""Every field of the groups by its flat name. Those that are excluded are no settings: only code gives them."""
SETTINGS: Mapping[str, Setting] = {name: field for name, field in FIELDS.items() if not field.field.exclude}
"""Every setting by its flat name, in the order of the groups."""


def flatten(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same values by flat names, tables of groups opened. Names that are no settings stay as they are, those of a
    table with it before them.
    """
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if name in Settings.model_fields and isinstance(value, Mapping):
            of_group = {
                setting.attribute: flat_name for flat_name, setting in SETTINGS.items() if setting.group == name
            }
            for key, one in value.items():
                known = of_group.get(key, key if key in of_group.values() else f"{name}.{key}")
                flat[known] = one
        else:
            flat[name] = value
    return flat


def flag_of(setting: str) -> str:
    """The flag of a setting, without its dashes."""
    return FLAGS.get(setting, setting.replace("_", "-"))


def to_environment(settings: Settings) -> dict[str, str]:
    """Every setting as `OPENCLAW_RL_*` variables, from which a child process loads the same settings."""
    return {f"{PREFIX}{name.upper()}": str(value) for name, value in settings.flat().items()}


def shown(settings: Settings, name: str) -> str:
    """A value as a person may see it: keys are hidden."""
    value = settings.value(name)
    if name in aliases.SECRETS:
        return "(set)" if value else ""
    return ("on" if value else "off") if isinstance(value, bool) else aliases.without_passwords(str(value))
