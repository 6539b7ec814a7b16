"""Which models answer as judge or write hints on a server of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from openclaw_rl.shared.settings.settings import Settings

JudgeRole = Literal["judge", "hint"]


def judge_models(settings: Settings) -> dict[JudgeRole, str]:
    """The folders or hub names that get a server of their own as judge and as hint model, spelled as
    `shared.settings.judge_spec` reads them; one that is both is served once.
    """
    found: dict[JudgeRole, str] = {}
    shared = settings.judge_engine_url if settings.hint_model == settings.judge.model else ""
    wanted: list[tuple[JudgeRole, str, str]] = [
        ("judge", "" if settings.custom_reward else settings.judge.model, settings.judge_engine_url),
        ("hint", settings.hint_model, settings.hint_engine_url or shared),
    ]
    for role, name, url in wanted:
        target = name.removeprefix("engine:").strip()
        served = name.startswith("engine:") or (bool(name) and _answers(Path(name).expanduser()))
        if served and "://" not in target and not url and target not in found.values():
            found[role] = target
    return found


def _answers(folder: Path) -> bool:
    """Whether a path alone means a model that answers: a folder of one that does not classify."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    if not isinstance(config, dict):
        return False
    return not any(str(name).endswith("ForSequenceClassification") for name in config.get("architectures") or ())
