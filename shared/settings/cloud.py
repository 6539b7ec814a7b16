"""Settings of cloud backends, and what they set differently from the defaults; the rest is in
`shared.settings.settings`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings

from openclaw_rl.shared.backends import CLOUDS
from openclaw_rl.shared.settings import aliases
from openclaw_rl.shared.settings.method_defaults import method_defaults

_DEFAULTS: Mapping[str, Any] = {"learning_rate": 1e-4, "epochs": 1, "lora_rank": 32}


def cloud_defaults(backend: object, method: object) -> Mapping[str, Any]:
    """What a setting that nobody chose is with a cloud backend; nothing for other backends.

    Tinker's client takes a learning rate of 1e-4 and a LoRA of rank 32 by default (`tinker.types.AdamParams`,
    `ServiceClient.create_lora_training_client`); its guide has a LoRA want ten times the rate of full weights
    (https://tinker-docs.thinkingmachines.ai/tinker/lora-primer/). Our 2e-3 is for the shipped policy, thousands of
    times smaller. A method that publishes a smaller rate keeps it. Each epoch is paid for again, so there is one.
    """
    if backend not in (*CLOUDS, "cloud"):
        return {}
    own = method_defaults(aliases.method(method))
    return {
        name: value
        for name, value in _DEFAULTS.items()
        if name not in own or (name == "learning_rate" and own[name] > value)
    }


class CloudSettings(BaseSettings):
    """Accounts with providers, what may be spent there, and what may be sent."""

    # Cloud backends
    tinker_api_key: str = Field("", description="Key of the Tinker account (backend = tinker)")
    tinker_base_url: str = Field(
        "https://tinker.thinkingmachines.dev/services/tinker-prod", description="Base URL of Tinker's API"
    )
    tinker_project: str = Field("", description="Tinker project that training runs are booked on")
    fireworks_api_key: str = Field("", description="Key of the Fireworks account (backend = fireworks)")
    fireworks_base_url: str = Field("https://api.fireworks.ai", description="Base URL of Fireworks' API")
    fireworks_mode: Literal["serverless", "dedicated"] = Field(
        "serverless",
        description="Where Fireworks trains: on shared trainers, paid by the token, or on dedicated ones, by time",
    )
    fireworks_deployment: str = Field(
        "",
        description="Deployment of yours that new weights are loaded into; default: one is made and removed again",
    )
    fireworks_region: str = Field("", description="Region of dedicated machines; default: Fireworks chooses")
    fireworks_shape: str = Field(
        "", description="Training or deployment shape of dedicated machines; default: Fireworks' own for the model"
    )
    cloud_loss: Literal["ppo", "cispo", "importance_sampling"] = Field(
        "ppo", description="The provider's loss that the reward's term is trained with"
    )
    cloud_timeout: float = Field(600.0, gt=0, description="Seconds a training request may take at the provider")
    cloud_patience: float = Field(
        60.0, ge=0, description="Seconds a chat waits while the provider fails or refuses, before it says so"
    )
    cloud_daily_train_tokens: int = Field(
        0,
        ge=0,
        description="Tokens that learning (training, rehearsals, scores, the guard) may take at the provider in a day "
        "(UTC); 0 sets no limit",
    )
    cloud_daily_steps: int = Field(0, ge=0, description="Training steps at the provider in a day (UTC); 0: no limit")
    cloud_daily_chat_tokens: int = Field(
        0, ge=0, description="Tokens that chats may take at the provider in a day (UTC), read and written; 0: no limit"
    )
    cloud_prices: str = Field("", description="File with a price table of your own; default: the one that ships")
    backend_fallback: Literal["", "embedded"] = Field(
        "",
        description="What `serve` starts where the provider cannot be used: embedded serves and trains the shipped "
        "policy on a data folder of its own (DATA/fallback); default: nothing, it says why and ends",
    )
    cloud_redact: Literal["off", "secrets", "all"] = Field(
        "secrets",
        description="What is taken out of conversations before they go to a cloud backend or an external judge: "
        "nothing, secrets, or secrets and personal data",
    )

    @field_validator("tinker_api_key", "fireworks_api_key", mode="after")
    @classmethod
    def _provider_key(cls, value: str) -> str:
        if not value.isascii() or any(character.isspace() for character in value):
            raise ValueError("a key is ASCII without blanks; copy it again, whole")
        return value

    @field_validator("tinker_base_url", "fireworks_base_url", mode="after")
    @classmethod
    def _provider_url(cls, value: str) -> str:
        if not re.match(r"https?://[^/\s]+", value):
            raise ValueError("not a URL; it begins with https:// (leave it out for the provider's own)")
        return value.rstrip("/")
