"""Where a model's files are: a folder, or a name of the Hugging Face hub, which is downloaded once."""

from __future__ import annotations

from pathlib import Path

from shared.errors import ConfigError

_FILES = ("*.json", "*.safetensors", "*.jinja", "*.txt", "*.model")
_OLD_WEIGHTS = ("*.bin",)


def local_folder(model: str, *, setting: str) -> str:
    """The folder of `model`: itself, or the hub's snapshot of that name, from the cache where it is there (with
    progress bars on stderr otherwise). Raises `ConfigError` naming `setting`.
    """
    if Path(model).is_dir():
        return model
    if model.count("/") > 1 or model.startswith((".", "/", "~")):
        raise ConfigError(f"{setting} = {model!r} is no folder; name a Hugging Face model folder, or one of the hub")
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{setting} = {model!r} is a name of the Hugging Face hub, and huggingface_hub is missing: "
            "pip install 'openclaw-rl[local]', or name a folder"
        ) from error
    try:
        folder = snapshot_download(model, allow_patterns=list(_FILES))
        if not any(Path(folder).glob("*.safetensors")):
            folder = snapshot_download(model, allow_patterns=[*_FILES, *_OLD_WEIGHTS])
    except (HfHubHTTPError, HFValidationError, OSError, ValueError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ConfigError(
            f"{setting} = {model!r} is no folder, and the Hugging Face hub does not give it: {reason}"
        ) from error
    return str(folder)
