"""Defaults that follow model, backend and method: the rows of `presets.toml`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.files import read_config
from openclaw_rl.shared.settings.method_defaults import method_defaults
from openclaw_rl.shared.settings.named_models import find_named

_SIZE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)([mb])(?![a-z])", re.IGNORECASE)
_WEIGHTS = ("*.safetensors", "*.bin")
HIDDEN_SIZE = 2000
"""The hidden size whose rates the table holds."""


class Preset(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A row of `presets.toml`: the default `values` of settings for `rehearse` and for methods of the user's own, and
    those for `published` methods (without any: the rate of a LoRA). It is for models with at least `parameters` weights
    and less than `below` (0: no bound). `source` says where the values come from.
    """

    name: str
    lora: bool
    source: str
    values: Mapping[str, int | float]
    published: Mapping[str, int | float] = {}
    backend: Literal["local", "cloud"] = "local"
    parameters: int = 0
    below: int = 0
    by_hidden_size: bool = False

    @property
    def for_published(self) -> Mapping[str, int | float]:
        """The values that come before those of a published method."""
        return self.published or {name: self.values[name] for name in ("learning_rate",) if self.lora}

    def fits(self, parameters: int, *, lora: bool, backend: str) -> bool:
        """True for a model with this many weights (0: unknown, taken for a chat model)."""
        if self.backend != backend or self.lora is not lora:
            return False
        return self.below == 0 if parameters == 0 else self.parameters <= parameters < (self.below or parameters + 1)


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    preset: tuple[Preset, ...]
    exponents: Mapping[str, float]
    hidden_sizes: Mapping[str, int]


_TABLE = msgspec.convert(tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8")), _Table)
PRESETS, EXPONENTS = _TABLE.preset, _TABLE.exponents


def find_preset(model: str, *, lora: bool, backend: Literal["local", "cloud"] = "local") -> Preset | None:
    """The preset of a model: a name, a folder or a hub name. `None` for the tiny policy and models of its size."""
    parameters = count_parameters(model) if backend == "local" else 0
    return next((preset for preset in PRESETS if preset.fits(parameters, lora=lora, backend=backend)), None)


def preset_values(preset: Preset | None, method: str, model: str, tokenizer: str = "") -> Mapping[str, Any]:
    """The values that a preset gives to a method and a model, of which `tokenizer` may be the only folder here."""
    if preset is None:
        return {}
    chosen = dict(preset.for_published if method_defaults(method) else preset.values)
    if preset.by_hidden_size and "learning_rate" in chosen:
        rate = chosen["learning_rate"] * rate_factor(model, tokenizer)
        chosen["learning_rate"] = float(f"{rate:.2g}")
    return chosen


def rate_factor(model: str, tokenizer: str = "") -> float:
    """The learning rate of a LoRA of this model, relative to one with a hidden size of 2,000; 1 if size or family are
    unknown. Source: the Tinker cookbook's `get_lr`.
    """
    name = _plain(model)
    known = (one for one in sorted(_TABLE.hidden_sizes, key=len, reverse=True) if name.startswith(one))
    own, other = _config(model), _config(tokenizer) if tokenizer else {}
    hidden = _hidden_size(own) or _TABLE.hidden_sizes.get(next(known, ""), 0) or _hidden_size(other)
    kinds = (name, str(own.get("model_type", "")), str(other.get("model_type", "")))
    family = next((one for kind in kinds for one in EXPONENTS if one in kind), "")
    return float((HIDDEN_SIZE / hidden) ** EXPONENTS[family]) if family and hidden else 1.0


def count_parameters(model: str) -> int:
    """The number of weights of a model, by the size of its files or by its name (`Qwen3-4B`); 0 if neither says it."""
    named = find_named(model)
    if named is not None:
        return named.parameters
    folder = Path(model)
    config = _config(model)
    stored = (sum(file.stat().st_size for file in folder.glob(pattern)) for pattern in _WEIGHTS) if config else ()
    if size := next(filter(None, stored), 0):
        dtype = str(config.get("dtype") or config.get("torch_dtype") or "")
        return size // (4 if dtype == "float32" else 2)
    found = _SIZE.search(folder.name)
    return int(float(found[1]) * (1e9 if found[2].lower() == "b" else 1e6)) if found else 0


def _hidden_size(config: Mapping[str, Any]) -> int:
    for holder in (config, config.get("text_config")):
        size = holder.get("hidden_size") if isinstance(holder, Mapping) else None
        if isinstance(size, int) and size > 0:
            return size
    return 0


def _config(folder: str) -> dict[str, Any]:
    try:
        return read_config(Path(folder) / "config.json")
    except ConfigError:
        return {}


def _plain(model: str) -> str:
    """The last part of a name in the spelling of the table: Fireworks writes `llama-v3p1-8b-instruct`."""
    return re.sub(r"(?<=\d)p(?=\d)", ".", Path(model).name.lower()).replace("llama-v", "llama-").replace("meta-", "")
