"""Until trainer_local.placement takes `JudgeModels`: the folders that get a server, by role."""

from __future__ import annotations

from openclaw_rl.shared.settings.judge_spec import JudgeModels, JudgeRole
from openclaw_rl.shared.settings.settings import Settings

__all__ = ["JudgeRole", "judge_models"]


def judge_models(settings: Settings) -> dict[JudgeRole, str]:
    """The engines to start. Raises `ConfigError`."""
    return JudgeModels.from_settings(settings.judge).to_serve
