"""The models that `judge`, `custom_reward` and `hint_model` name, and which of them need an engine started here."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.placement import ServerRole
from openclaw_rl.shared.settings.learning import JudgeSettings
from openclaw_rl.shared.settings.model_reference import ModelReference, read_model


class JudgeModels(msgspec.Struct, frozen=True):
    """`judge` scores (your own reward model is a hook); `hint` writes hints, `None` where the judge does."""

    judge: ModelReference
    hint: ModelReference | None

    @classmethod
    def from_settings(cls, settings: JudgeSettings) -> JudgeModels:
        """Raises `ConfigError` naming the setting that names no such model."""
        reward = settings.custom_reward
        judge = ModelReference("custom_reward", "hook", reward) if reward else read_model(settings.model, "judge")
        if not settings.hint_model:
            return cls(judge, None)
        hint = read_model(settings.hint_model, "hint_model")
        if hint.kind in ("rules", "reward-model", "hook"):
            raise ConfigError(
                f"hint_model = {settings.hint_model!r} writes no hints; choose policy, engine:FOLDER or a LiteLLM model"
            )
        return cls(judge, hint)

    @property
    def asked(self) -> list[ModelReference]:
        """The models that see conversations."""
        return [self.judge] if self.hint is None else [self.judge, self.hint]

    @property
    def to_serve(self) -> dict[ServerRole, str]:
        """The folder or hub name of each engine to start, by role; a model that is both is served once."""
        found: dict[ServerRole, str] = {}
        roles: list[tuple[ServerRole, ModelReference | None]] = [("judge", self.judge), ("hint", self.hint)]
        for role, model in roles:
            if model is not None and model.kind == "engine" and not model.url and model.name not in found.values():
                found[role] = model.name
        return found

    def changes(self, folders: Mapping[str, str], urls: Mapping[str, str]) -> dict[str, str]:
        """Settings that name the same models by folder, and at the URLs that their engines were given, by name."""
        return {
            model.setting: model.at(name=folders.get(model.name, ""), url=model.url or urls.get(model.name, ""))
            for model in self.asked
            if model.kind in ("engine", "reward-model") and (model.name in folders or model.name in urls)
        }
