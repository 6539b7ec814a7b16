"""Names of models other than the policy in settings: `NAME`, or `NAME@URL` where it runs at an address of its own."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Literal

import msgspec

from openclaw_rl.shared.engine.http_client import without_secret
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.files import read_json
from openclaw_rl.shared.hooks import is_hook
from openclaw_rl.shared.settings.named_models import NAMED_MODELS, find_named, model_path

Kind = Literal["rules", "policy", "engine", "reward-model", "hook", "litellm"]
AUTO = "auto"
"""The value of `judge` that leaves the choice to `shared.settings.judge_spec`."""
_PLACED = re.compile(r"(?:(.+)@)?(https?://\S+)")
_CLASSIFIER = "ForSequenceClassification"


class ModelReference(msgspec.Struct, frozen=True):
    """A model that `setting` names. `name`: the folder or hub name of an engine's model ("" where only its URL is
    given), the folder of a reward model, the path of a hook, LiteLLM's name. `url`: where it runs, "" for an engine
    that `serve` starts and for a provider's own address.
    """

    setting: str
    kind: Kind
    name: str = ""
    url: str = ""

    @property
    def title(self) -> str:
        """The name for people and for the journal."""
        if self.kind in ("engine", "reward-model"):
            named = find_named(self.name) if self.name else None
            name = named.name if named is not None else self.name or without_secret(self.url)
            return f"{self.kind}:{name}"
        return self.name or self.kind

    def at(self, *, name: str = "", url: str = "") -> str:
        """The setting's text for the same model in another folder, or running at `url`."""
        name, url = name or self.name, url or self.url
        return f"{self.kind}:{name}@{url}" if name and url else f"{self.kind}:{name or url}"


def read_model(text: str, setting: str) -> ModelReference:
    """The model of the setting `judge`, `hint_model`, `side_model` or `fallback_model`.

    A prefix or a plain word decides, then the form of a hook, then whether there is such a folder (a sequence
    classifier is a reward model, any other model gets an engine); the rest is LiteLLM's. A named model (`smollm2`)
    means its folder. Raises `ConfigError`.
    """
    if text == AUTO:
        raise ConfigError(f"{setting} = {AUTO!r} names no model; only judge can be chosen automatically")
    if text in ("rules", "policy"):
        return ModelReference(setting, "rules" if text == "rules" else "policy")
    placed = _PLACED.fullmatch(text.removeprefix("engine:"))
    name, url = (placed[1] or "", placed[2].rstrip("/")) if placed else (text.removeprefix("engine:").strip(), "")
    if text.startswith("engine:"):
        if not name and not url:
            raise ConfigError(f"{setting} = {text!r} names no folder: engine:FOLDER, or engine:FOLDER@URL if it runs")
        return ModelReference(setting, "engine", model_path(name), url)
    if name in NAMED_MODELS:
        return ModelReference(setting, "engine", model_path(name), url)
    if text.startswith("reward-model:"):
        folder = text.removeprefix("reward-model:").strip()
        if not folder:
            raise ConfigError(f"{setting} = {text!r} names no folder: reward-model:FOLDER")
        return ModelReference(setting, "reward-model", model_path(folder))
    if is_hook(text):
        return ModelReference(setting, "hook", text)
    known = is_classifier(name)
    if known is not None:
        return ModelReference(setting, "reward-model" if known else "engine", name, url)
    if text.startswith(("/", "./", "../", "~")):
        raise ConfigError(f"{setting} = {text!r} is no folder of a model (it has no config.json)")
    if not name:
        raise ConfigError(f"{setting} = {text!r} names no model; write its name before the address: NAME@{url}")
    close = difflib.get_close_matches(text.lower(), ("rules", "policy", AUTO, *NAMED_MODELS), n=1, cutoff=0.75)
    if close:
        raise ConfigError(f"{setting} = {text!r} is no model; did you mean {close[0]}?")
    return ModelReference(setting, "litellm", name, url)


def is_classifier(folder: str) -> bool | None:
    """True for the folder of a sequence classifier, False for that of any other model, `None` for no model's."""
    config = read_json(Path(folder).expanduser() / "config.json")
    return None if config is None else any(str(one).endswith(_CLASSIFIER) for one in config.get("architectures") or ())
