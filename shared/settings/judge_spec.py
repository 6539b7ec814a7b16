"""The models that `judge`, `custom_reward`, `hint_model` and `teacher` name, and which of them need an engine started
here. `judge = auto` is resolved here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.placement import ServerRole
from openclaw_rl.shared.settings.model_reference import AUTO, ModelReference, read_model
from openclaw_rl.shared.settings.named_models import TINY, find_named
from openclaw_rl.shared.settings.presets import count_parameters
from openclaw_rl.shared.settings.settings import Settings

SMALLEST_JUDGE = 3_500_000_000
"""Parameters from which `auto` lets the base judge. Nominal 4B models are the smallest with published results as judges
of their own conversations (OpenClaw-RL, arXiv 2603.10165); SmolLM2-135M was measured and cannot judge
(bench/results/judge_smollm2.json).
"""


class JudgeModels(msgspec.Struct, frozen=True):
    """`judge` scores (your own reward model is a hook); `hint` writes hints, `None` where the judge does; `teacher` is
    the teacher where that is another model than the policy. `reason` says why `auto` chose the judge, "" if a setting
    names it.
    """

    judge: ModelReference
    hint: ModelReference | None
    teacher: ModelReference | None = None
    reason: str = ""

    @classmethod
    def from_settings(cls, settings: Settings) -> JudgeModels:
        """Raises `ConfigError` naming the setting that names no such model."""
        asked, learning = settings.judge, settings.learning
        reward = asked.custom_reward
        judge, reason = (ModelReference("custom_reward", "hook", reward), "") if reward else choose_judge(settings)
        teacher = None
        if learning.train and learning.has_other_teacher:
            teacher = read_model(learning.teacher, "teacher")
        if not asked.hint_model:
            return cls(judge, None, teacher, reason)
        hint = read_model(asked.hint_model, "hint_model")
        if hint.kind in ("rules", "reward-model", "hook"):
            raise ConfigError(
                f"hint_model = {asked.hint_model!r} writes no hints; choose policy, engine:FOLDER or a LiteLLM model"
            )
        return cls(judge, hint, teacher, reason)

    @property
    def asked(self) -> list[ModelReference]:
        """The models that see conversations."""
        return [model for model in (self.judge, self.hint, self.teacher) if model is not None]

    @property
    def judge_title(self) -> str:
        """The judge and why it was chosen, for people: `rules (auto: the tiny policy)`."""
        return f"{self.judge.title} ({AUTO}: {self.reason})" if self.reason else self.judge.title

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


def choose_judge(settings: Settings) -> tuple[ModelReference, str]:
    """The model that `judge` names, or that `auto` chooses with the reason. `custom_reward` is not considered. Raises
    `ConfigError`.
    """
    if settings.judge.model != AUTO:
        return read_model(settings.judge.model, "judge"), ""
    obstacle = _obstacle(settings)
    return read_model("rules" if obstacle else "policy", "judge"), obstacle or _size(settings)


def _obstacle(settings: Settings) -> str:
    """The reason why the base does not judge; "" if it does."""
    engine, cloud = settings.engine, settings.cloud
    if find_named(engine.model) is TINY:
        return "the tiny policy"
    count = count_parameters(engine.model)
    if count and count < SMALLEST_JUDGE:
        return f"{_size(settings)}, and a model judges from {SMALLEST_JUDGE / 1e9:g} billion"
    if not count and not engine.is_cloud:
        return "the size of the policy is unknown"
    if engine.backend == "fireworks" and cloud.fireworks.is_dedicated:
        return "a dedicated deployment does not serve the base next to a version"
    if not settings.learning.lora and (engine.backend == "megatron" or engine.url):
        return "SGLang does not serve the base next to a version with all weights (lora = off)"
    return ""


def _size(settings: Settings) -> str:
    return size_text(settings.engine.model) or "a provider's model, whose name does not give its size"


def size_text(model: str) -> str:
    """The number of a model's parameters with the word; "" if neither its files nor its name say it."""
    count = count_parameters(model)
    if not count:
        return ""
    return f"{count / 1e9:.3g} billion parameters" if count >= 1e9 else f"{count / 1e6:.3g} million parameters"
