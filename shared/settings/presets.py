"""Defaults that follow the size of the model: the rows of `presets.toml`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.files import read_config
from openclaw_rl.shared.settings.method_defaults import method_defaults
from openclaw_rl.shared.settings.named_models import find_named

_SIZE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)([mb])(?![a-z])", re.IGNORECASE)


class Preset(msgspec.Struct, frozen=True, kw_only=True):
    """Default `values` of settings for models with at least `parameters` weights and less than `below` (0: no bound),
    trained by LoRA or not. `source` says where the values come from.
    """

    name: str
    parameters: int
    lora: bool
    source: str
    values: Mapping[str, int | float]
    below: int = 0


PRESETS = msgspec.convert(
    tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))["preset"], tuple[Preset, ...]
)


def find_preset(model: str, *, lora: bool) -> Preset | None:
    """The preset of a model: a name, a folder or a hub name. `None` for a small or unknown one."""
    count = count_parameters(model)
    for preset in PRESETS:
        if preset.lora is lora and count >= preset.parameters and not (preset.below and count >= preset.below):
            return preset
    return None


def preset_values(preset: Preset | None, method: str) -> Mapping[str, Any]:
    """The values that a preset gives to a method. Published methods keep their own, except the learning rate of a
    LoRA: theirs is for all weights, and a LoRA hardly moves at it.
    """
    if preset is None:
        return {}
    own = {} if method == "rehearse" else method_defaults(method)
    if not own:
        return preset.values if method == "rehearse" else {}
    return {name: value for name, value in preset.values.items() if name == "learning_rate" and preset.lora}


def count_parameters(model: str) -> int:
    """The number of weights of a model, by the size of its files or by its name (`Qwen3-4B`); 0 if neither says it."""
    named = find_named(model)
    if named is not None:
        return named.parameters
    folder = Path(model)
    try:
        config = read_config(folder / "config.json")
    except ConfigError:
        config = {}
    stored = sum(file.stat().st_size for file in folder.glob("*.safetensors")) if config else 0
    if stored:
        dtype = str(config.get("dtype") or config.get("torch_dtype") or "")
        return stored // (4 if dtype == "float32" else 2)
    found = _SIZE.search(folder.name)
    return int(float(found[1]) * (1e9 if found[2].lower() == "b" else 1e6)) if found else 0
