"""A Hugging Face model's folder, read from its config and the headers of its safetensors files, without torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from openclaw_rl.trainer_local.placement.model_shape import tensor_shapes

_TIED = "lm_head.weight"  # in tied models some writers leave it out


class _Text(msgspec.Struct):
    hidden_size: int = 0
    num_hidden_layers: int = 0
    vocab_size: int = 0


class _Size(_Text):
    model_type: str = ""
    text_config: _Text | None = None  # of a vision model


class _Config(msgspec.Struct):
    quantization_config: dict[str, Any] | None = None
    dtype: Any = None
    torch_dtype: Any = None  # its name before transformers 5


def quantization(folder: str) -> str:
    """Quantization method of a model's weights (awq, gptq, fp8…); "" if there is none, or no such folder here."""
    return str((_config(folder).quantization_config or {}).get("quant_method") or "")


def dtype(folder: str) -> str:
    """The type that a model's weights are made for, "" if its config has none."""
    config = _config(folder)
    return str(config.dtype or config.torch_dtype or "")


def another(path: str, kind: str, base: str) -> str:
    """Difference between the model at `path`, of the type `kind` ("" if unknown), and that in the folder `base`; "" if
    none is found, or if the folders are not on this machine.
    """
    wanted, served = _config(base, _Size), _config(path, _Size)
    found = served.model_type or kind  # SGLang has other names for some types
    if found and wanted.model_type and found != wanted.model_type:
        return f"{path} is {found}, not {wanted.model_type}"
    for name in _Text.__struct_fields__:
        mine, theirs = (getattr(one.text_config or one, name) for one in (wanted, served))
        if mine and theirs and mine != theirs:
            return f"{path} has {name} = {theirs}, not {mine}"
    return ""


def _config(folder: str, kind: type[Any] = _Config) -> Any:
    try:
        return msgspec.json.decode((Path(folder) / "config.json").read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError):
        return kind()


def problem(path: str, base: str) -> str:
    """Reason why the weights in the folder `path` cannot replace those in `base`; "" if they can, or if one of the
    folders is not on this machine.
    """
    folder = Path(path)
    if not folder.exists() and not folder.is_absolute():
        return f"{path!r} is no folder"
    if not folder.is_dir():
        return "" if not folder.exists() else f"{path} is no folder"
    try:
        found = tensor_shapes(folder)
        wanted = tensor_shapes(Path(base)) if Path(base).is_dir() else {}
    except (OSError, ValueError) as error:
        return str(error)
    if (folder / "adapter_config.json").is_file():
        return f"{path} is an adapter, and the engine was started without --enable-lora"
    if not found or not (folder / "config.json").is_file():
        return f"{path} holds no model: config.json and *.safetensors"
    if wanted and not wanted.keys() & found.keys():
        return f"{path} is of another architecture than the base: it has no weight of the same name"
    for name, shape in wanted.items():
        if name not in found and name != _TIED:
            return f"{path} lacks {name}, which the base has"
        if name in found and list(found[name]) != list(shape):
            return f"{path} is of another architecture than the base: {name} is {found[name]} instead of {shape}"
    return ""
