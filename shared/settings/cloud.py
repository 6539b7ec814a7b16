"""Settings of cloud backends."""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import Field, field_validator

from openclaw_rl.shared.settings.group import Group, Key, Url

CLOUDS = ("tinker", "fireworks")
"""Backends whose weights live with a provider."""

KEYS = ("judge", "hint", "side", "fallback")
"""The models that may have keys of their own."""


class FireworksMode(NamedTuple):
    """The way Fireworks trains; an option that is "" is Fireworks' choice, a deployment that is "" is created."""

    is_dedicated: bool
    deployment: str = ""
    region: str = ""
    shape: str = ""


class CloudSettings(Group):
    """Accounts with providers, what may be spent there, and what may be sent."""

    tinker_api_key: Key = Field("", description="Key of the Tinker account (backend = tinker)")
    tinker_base_url: Url = Field(
        "https://tinker.thinkingmachines.dev/services/tinker-prod", min_length=1, description="Base URL of Tinker's API"
    )
    model_keys: str = Field(
        "",
        description="Keys of the models in judge, hint_model, side_model and fallback_model: judge=KEY, side=KEY; in "
        "the file also a table [model_keys]; default: the provider's own variable",
    )
    tinker_project: str = Field("", description="Tinker project of the training runs")
    fireworks_api_key: Key = Field("", description="Key of the Fireworks account (backend = fireworks)")
    fireworks_base_url: Url = Field("https://api.fireworks.ai", min_length=1, description="Base URL of Fireworks' API")
    fireworks_mode: str = Field(
        "serverless",
        pattern=r"^(serverless|dedicated( (deployment|region|shape)=\S+)*)$",
        description="Where Fireworks trains: serverless (shared trainers, billed per token) or dedicated (billed by "
        "time), with options: dedicated deployment=YOURS region=REGION shape=SHAPE. Without deployment= the service "
        "creates a deployment and deletes it afterwards; without region= or shape= Fireworks chooses them",
    )
    daily_train_tokens: int = Field(
        0,
        ge=0,
        alias="cloud_daily_train_tokens",
        description="Maximum tokens per day (UTC) at the provider for learning: training, rehearsals, scores, the "
        "guard; 0 sets no limit",
    )
    daily_steps: int = Field(
        0,
        ge=0,
        alias="cloud_daily_steps",
        description="Maximum training steps per day (UTC) at the provider; 0 sets no limit",
    )
    daily_chat_tokens: int = Field(
        0,
        ge=0,
        alias="cloud_daily_chat_tokens",
        description="Maximum tokens per day (UTC) at the provider for chat (prompts and answers); 0 sets no limit",
    )
    prices: str = Field(
        "", alias="cloud_prices", description="File with your own price table; default: the built-in table"
    )
    backend_fallback: Literal["", "embedded"] = Field(
        "",
        description="Backend that `serve` starts if the provider cannot be used: embedded, which serves and trains the "
        "shipped policy on a separate data folder (DATA/fallback); default: none, `serve` ends with the reason",
    )
    redact: Literal["off", "secrets", "all"] = Field(
        "secrets",
        alias="cloud_redact",
        description="Data removed from conversations before they go to a cloud backend or an external judge: nothing "
        "(off), secrets (secrets), or secrets and personal data (all)",
    )

    loss: Literal["ppo", "cispo", "importance_sampling"] = Field("ppo", alias="cloud_loss", exclude=True)
    patience: float = Field(60.0, ge=0, alias="cloud_patience", exclude=True)
    """No settings: the provider's loss for the reward term, and the seconds that a chat waits while the provider fails
    or refuses, before it gets the error.
    """

    @field_validator("model_keys", mode="after")
    @classmethod
    def _model_keys(cls, value: str) -> str:
        for role, equals, key in map(_pair, filter(None, value.split(","))):
            if not equals or role not in KEYS or not key.isascii() or any(map(str.isspace, key)):
                raise ValueError(f"write judge=KEY, side=KEY, with one of {', '.join(KEYS)} before each =")
        return value

    @property
    def fireworks(self) -> FireworksMode:
        """The parts of `fireworks_mode`."""
        mode, *options = self.fireworks_mode.split()
        return FireworksMode(mode == "dedicated", **dict(option.split("=", 1) for option in options))

    def key_of(self, role: str) -> str:
        """The key of the judge, hint, side or fallback model; "" leaves it to the provider's own variable."""
        return next((key for name, _, key in map(_pair, self.model_keys.split(",")) if name == role), "")


def _pair(text: str) -> tuple[str, str, str]:
    name, equals, value = text.partition("=")
    return name.strip(), equals, value.strip()
