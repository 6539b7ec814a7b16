"""A Hugging Face model's folder, read from its config and the headers of its safetensors files, without torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from openclaw_rl.shared.files import read_json
from openclaw_rl.trainer_local.placement.model_shape import tensor_shapes

_TIED = "lm_head.weight"  # in tied models some writers leave it out


def quantization(folder: str) -> str:
    """Quantization method of a model's weights (awq, gptq, fp8…); "" if there is none, or no such folder here."""
    return str((_config(folder).get("quantization_config") or {}).get("quant_method") or "")


def dtype(folder: str) -> str:
    """The type that a model's weights are made for, "" if its config has none."""
    config = _config(folder)
    for part in (config, config.get("text_config") or {}):
        if found := part.get("dtype") or part.get("torch_dtype"):  # its name before transformers 5
            return str(found)
    return ""


def another(path: str, kind: str, base: str) -> str:
    """Difference between the model at `path`, of the type `kind` ("" if unknown), and that in the folder `base`; "" if
    none is found, or if the folders are not on this machine.
    """
    wanted, served = _config(base), _config(path)
    found = served.get("model_type") or kind  # SGLang has other names for some types
    if found and wanted.get("model_type") and found != wanted["model_type"]:
        return f"{path} is {found}, not {wanted['model_type']}"
    for name in ("hidden_size", "num_hidden_layers", "vocab_size"):
        mine, theirs = ((one.get("text_config") or one).get(name) for one in (wanted, served))
        if mine and theirs and mine != theirs:
            return f"{path} has {name} = {theirs}, not {mine}"
    return ""


def _config(folder: str) -> dict[str, Any]:
    return read_json(Path(folder) / "config.json") or {}


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
