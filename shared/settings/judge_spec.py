"""The models that `judge`, `custom_reward`, `hint_model` and `teacher` name, and which of them need an engine started
here.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.placement import ServerRole
from openclaw_rl.shared.settings.model_reference import ModelReference, read_model
from openclaw_rl.shared.settings.settings import Settings


class JudgeModels(msgspec.Struct, frozen=True):
    """`judge` scores (your own reward model is a hook); `hint` writes hints, `None` where the judge does; `teacher` is
    the teacher where that is another model than the policy.
    """

    judge: ModelReference
    hint: ModelReference | None
    teacher: ModelReference | None = None

    @classmethod
    def from_settings(cls, settings: Settings) -> JudgeModels:
        """Raises `ConfigError` naming the setting that names no such model."""
        asked, learning = settings.judge, settings.learning
        reward = asked.custom_reward
        judge = ModelReference("custom_reward", "hook", reward) if reward else read_model(asked.model, "judge")
        teacher = None
        if learning.train and learning.has_other_teacher:
            teacher = read_model(learning.teacher, "teacher")
        if not asked.hint_model:
            return cls(judge, None, teacher)
        hint = read_model(asked.hint_model, "hint_model")
        if hint.kind in ("rules", "reward-model", "hook"):
            raise ConfigError(
                f"hint_model = {asked.hint_model!r} writes no hints; choose policy, engine:FOLDER or a LiteLLM model"
            )
        return cls(judge, hint, teacher)

    @property
    def asked(self) -> list[ModelReference]:
        """The models that see conversations."""
        return [model for model in (self.judge, self.hint, self.teacher) if model is not None]

    @property
    def to_serve(self) -> dict[ServerRole, str]:
        """The folder or hub name of each engine to start, by role; a model with several roles is served once."""
        found: dict[ServerRole, str] = {}
        roles: dict[ServerRole, ModelReference | None] = {
            "judge": self.judge,
            "hint": self.hint,
            "teacher": self.teacher,
        }
        for role, model in roles.items():
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
