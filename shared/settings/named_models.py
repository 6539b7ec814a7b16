"""Models with a name of one word (`--model smollm2`): their facts, and the folder that each word means.

A name stands for a folder: one of this package, or one in the user's cache, where `cli.model_package` writes it. A
folder of the same name is written `./smollm2`.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.files import read_json

CACHE_VARIABLE = "OPENCLAW_RL_CACHE"
POLICY_FILE = "policy.json"
"""The file in a data folder that names the policy it belongs to."""
_ROOT = Path(__file__).resolve().parents[2]
_TABLE = Path(__file__).with_suffix(".toml")
_FORMAT = 2
"""Raise it when converted folders change: a new number is a new folder."""


class ModelPackage(msgspec.Struct, frozen=True, kw_only=True):
    """A wheel of the Python package index that holds a model as the GGUF file `gguf`, a path in the wheel."""

    name: str
    version: str
    wheel_bytes: int
    wheel_sha256: str
    gguf: str
    quantization: str


class NamedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model by its `name`; `folder` is relative to this package, or there is a `package` to convert.

    `parameters`: number of weights; `owner`: who made the model; `temperature`: the sampling temperature that its maker
    recommends; `reward_learning_rate`: the one with which it learns from rewards alone, 0 for the method's;
    `hub_name`: the original at the Hugging Face hub.
    """

    name: str
    title: str
    parameters: int
    owner: str
    licence: str
    temperature: float = 1.0
    reward_learning_rate: float = 0.0
    hub_name: str = ""
    folder: str = ""
    package: ModelPackage | None = None

    @property
    def path(self) -> Path:
        """The model's folder. Raises `ConfigError` if the user has no cache folder."""
        if self.package is None:
            return _ROOT / self.folder
        return user_cache("models") / f"{self.name}-{self.package.wheel_sha256[:12]}-{_FORMAT}"

    def describe(self) -> str:
        """Name, size, owner, licence and source in a line."""
        size = f"{self.parameters / 1e6:.1f} million parameters"
        facts = [self.title, size, f"by {self.owner}", f"licence {self.licence}"]
        if self.package is not None:
            source = f"from the Python package {self.package.name} {self.package.version}"
            facts.append(f"{source} ({self.package.quantization}, converted to float32)")
        return f"{self.name}: {', '.join(facts)}"


def user_cache(part: str) -> Path:
    """A folder of the user for what can be made again: in OPENCLAW_RL_CACHE, else in XDG_CACHE_HOME (XDG Base Directory
    Specification), else in ~/.cache. Raises `ConfigError` if the user has no home.
    """
    if own := os.environ.get(CACHE_VARIABLE):
        return Path(own).expanduser().absolute() / part
    given = os.environ.get("XDG_CACHE_HOME", "")
    try:
        cache = Path(given) if os.path.isabs(given) else Path.home() / ".cache"
    except RuntimeError as error:
        raise ConfigError(f"this user has no home folder: set {CACHE_VARIABLE} to a folder for {part}") from error
    return cache / "openclaw-rl" / part


def _read() -> dict[str, NamedModel]:
    tables = tomllib.loads(_TABLE.read_text("utf-8"))
    return {name: msgspec.convert({"name": name, **table}, NamedModel) for name, table in tables.items()}


NAMED_MODELS: Mapping[str, NamedModel] = _read()
TINY, SMOLLM2 = NAMED_MODELS["tiny"], NAMED_MODELS["smollm2"]


def model_path(text: str) -> str:
    """The folder of a named model; any other text as it is. Raises `ConfigError` without a cache folder."""
    return str(NAMED_MODELS[text].path) if text in NAMED_MODELS else text


def find_named(model: str) -> NamedModel | None:
    """The named model that a word or a folder means, also a folder that is not written yet; `None` for any other."""
    if model in NAMED_MODELS:
        return NAMED_MODELS[model]
    path = os.path.realpath(model)
    for one in NAMED_MODELS.values():
        try:
            if os.path.realpath(one.path) == path:
                return one
        except ConfigError:  # without a cache folder, none of its folders can be meant
            continue
    return None


def find_original(hub_name: str) -> NamedModel | None:
    """The named model whose original at the Hugging Face hub has this name."""
    return next((one for one in NAMED_MODELS.values() if hub_name and one.hub_name == hub_name), None)


def close_name(text: str) -> str:
    """The named model that a word without a slash may be a misspelling of; "" for any other text."""
    close = [] if "/" in text else difflib.get_close_matches(text.lower(), NAMED_MODELS, n=1, cutoff=0.75)
    return close[0] if close else ""


def default_model(data: Path) -> NamedModel:
    """The policy if no setting names one: that of the data folder, if it has a name; in a new data folder SmolLM2 if
    it is in the cache, else the tiny policy.
    """
    kept = (read_json(data / POLICY_FILE) or {}).get("model")
    if kept is not None:
        return NAMED_MODELS.get(str(kept), TINY)
    try:
        return SMOLLM2 if SMOLLM2.path.is_dir() else TINY
    except ConfigError:
        return TINY
