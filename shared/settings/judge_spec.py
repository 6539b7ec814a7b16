"""How the settings `judge` and `hint_model` are spelled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import msgspec

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.hooks import is_hook
from openclaw_rl.shared.settings.settings import Settings

Kind = Literal["rules", "policy", "engine", "reward-model", "hook", "litellm"]
ENGINE_URLS = {"judge": "judge_engine_url", "hint_model": "hint_engine_url"}
_CLASSIFIER = "ForSequenceClassification"


class Spelling(msgspec.Struct, frozen=True):
    """What a name means. `target`: the folder, hub name or URL of an engine, the folder of a reward model, the path of
    a hook, the name LiteLLM knows; "" for the others.
    """

    kind: Kind
    target: str = ""

    @property
    def url(self) -> str:
        """The URL in `engine:URL`, "" where a folder is named."""
        return self.target.rstrip("/") if self.kind == "engine" and "://" in self.target else ""


def read(name: str, *, setting: str = "judge") -> Spelling:
    """What `name` means: a prefix or a plain word decides, then the form of a hook, then whether there is such a folder
    (a sequence classifier is a reward model, any other model gets an engine); the rest is LiteLLM's. Raises
    `ConfigError` naming `setting`.
    """
    if name in ("rules", "policy"):
        return Spelling("rules" if name == "rules" else "policy")
    for kind in ("engine", "reward-model"):
        if name.startswith(f"{kind}:"):
            target = name.removeprefix(f"{kind}:").strip()
            if not target:
                raise ConfigError(f"{setting} = {name!r} names no folder: {kind}:FOLDER")
            return Spelling("engine" if kind == "engine" else "reward-model", target)
    if is_hook(name):
        return Spelling("hook", name)
    if (Path(name).expanduser() / "config.json").is_file():
        return Spelling("reward-model" if _is_classifier(Path(name).expanduser()) else "engine", name)
    if name.startswith(("/", "./", "../", "~")):
        raise ConfigError(f"{setting} = {name!r} is no folder of a model (it has no config.json)")
    return Spelling("litellm", name)


def scorer(settings: Settings) -> Spelling:
    """Who scores."""
    return read(settings.judge.model)


def hinter(settings: Settings) -> Spelling | None:
    """Who proposes hints, `None` where the judge does. Raises `ConfigError` for what cannot write any."""
    if not settings.hint_model:
        return None
    found = read(settings.hint_model, setting="hint_model")
    if found.kind in ("rules", "reward-model", "hook"):
        raise ConfigError(
            f"hint_model = {settings.hint_model!r} writes no hints; choose policy, engine:FOLDER or a LiteLLM model"
        )
    return found


def engine_url(settings: Settings, setting: str) -> str:
    """Where the engine of `judge` or `hint_model` runs, if that is told; a hint model that is the judge's own shares
    its engine.
    """
    url = str(settings.value(ENGINE_URLS[setting]))
    if not url and setting == "hint_model" and hinter(settings) == scorer(settings):
        return settings.judge_engine_url
    return url


def _is_classifier(folder: Path) -> bool:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return any(str(name).endswith(_CLASSIFIER) for name in config.get("architectures") or ())
