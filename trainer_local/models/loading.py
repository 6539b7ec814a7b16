"""Policies from disk: a Hugging Face folder or hub name, or a PEFT adapter folder on top of a base.

An adapter version becomes a model that shares all other weights with the base. Plain LoRA is merged here, weight by
weight (milliseconds, which hardly delay decoding), where the base is in single precision. In half precision it stays
next to the weights: a merged weight would round small changes away. Other adapters go through PEFT.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, PreTrainedModel

from openclaw_rl.shared.rendering.families import FAMILIES, MODEL_TYPES
from openclaw_rl.trainer_local.training.checkpoint import ADAPTER_CONFIG

ADAPTER_WEIGHTS = "adapter_model.safetensors"
# Config fields that are merged here or do not change the weights; with any other one the adapter goes through PEFT.
_PLAIN_LORA = frozenset(
    (
        *("auto_mapping", "base_model_name_or_path", "exclude_modules", "inference_mode", "init_lora_weights"),
        *("layers_pattern", "layers_to_transform", "lora_alpha", "lora_dropout", "megatron_core", "peft_type"),
        *("peft_version", "qalora_group_size", "r", "revision", "runtime_config", "target_modules", "task_type"),
    )
)


class CheckpointError(Exception):
    """A folder that cannot be served; the message says which and why."""


class LoraLinear(torch.nn.Module):
    """A linear layer in half precision with an adapter next to its weight: `x W^T + b + (x A^T) (scale B)^T` with A
    `[r, in]` and B `[out, r]`. The sum is rounded once: a small change of a rounded product would be lost as well.
    """

    def __init__(self, base: torch.nn.Linear, down: Tensor, up: Tensor, scale: float) -> None:
        super().__init__()
        self.base = base
        like = base.weight
        self.down = torch.nn.Parameter(down.to(like.device, like.dtype), requires_grad=False)
        self.up = torch.nn.Parameter((up.float() * scale).to(like.device, like.dtype), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """`[…, in]` to `[…, out]`."""
        rows = x.flatten(0, -2)
        out = _product(rows, self.base.weight) + _product(F.linear(rows, self.down), self.up)
        if self.base.bias is not None:
            out += self.base.bias
        return out.to(x.dtype).unflatten(0, x.shape[:-1])


def _product(rows: Tensor, weight: Tensor) -> Tensor:
    """`rows W^T` of numbers in half precision, in single precision."""
    if rows.device.type == "cuda":
        return torch.mm(rows, weight.T, out_dtype=torch.float32)
    return F.linear(rows.float(), weight.float())


def resolve_dtype(name: str, device: torch.device) -> torch.dtype | str:
    """`auto` is float32 on a CPU and the folder's own elsewhere."""
    if name == "auto":
        return torch.float32 if device.type == "cpu" else "auto"
    return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[name]


def model_class(path: str) -> Any:
    """Class to load the model as, with the vision encoder in families that take images. Engine and trainer use the
    same, so weights have the same names. Raises what transformers raises.
    """
    config = AutoConfig.from_pretrained(path)
    family = FAMILIES.get(MODEL_TYPES.get(str(config.model_type), ""))
    sees = family is not None and family.images and getattr(config, "vision_config", None) is not None
    return AutoModelForImageTextToText if sees else AutoModelForCausalLM


def load_model(path: str, device: torch.device, dtype: torch.dtype | str) -> PreTrainedModel:
    """A causal LM for inference. Raises `CheckpointError`."""
    try:
        model = model_class(path).from_pretrained(path, dtype=dtype)
    except (OSError, ValueError, KeyError, RuntimeError, TypeError, AttributeError, SafetensorError) as error:
        raise CheckpointError(f"{path} cannot be loaded as a causal language model: {_first_line(error)}") from error
    model.requires_grad_(False)
    model.eval()
    model.to(device)
    check_finite(model, path)
    return model


def load_version(path: str, base: PreTrainedModel) -> PreTrainedModel:
    """The model of a checkpoint folder: PEFT adapter on `base`, or a whole model of the same architecture.

    Raises `CheckpointError`; `base` is never changed.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise CheckpointError(f"{path} is not a folder")
    if (folder / ADAPTER_CONFIG).exists():
        return _load_adapter(folder, base)
    if not (folder / "config.json").exists():
        raise CheckpointError(f"{path} holds neither {ADAPTER_CONFIG} nor config.json: not a policy")
    model = load_model(path, base.device, base.dtype)
    expected = {name: tuple(weight.shape) for name, weight in base.state_dict().items()}
    found = {name: tuple(weight.shape) for name, weight in model.state_dict().items()}
    if expected != found:
        names = sorted(set(expected.items()) ^ set(found.items()))
        raise CheckpointError(f"{path} is of another architecture than the base: {names[0][0]} differs")
    return model


def check_finite(model: PreTrainedModel, path: str) -> None:
    """Raises `CheckpointError` naming the first weight with NaN or infinity."""
    for name, weight in model.named_parameters():
        if not bool(torch.isfinite(weight.sum())) and not bool(torch.isfinite(weight).all()):
            raise CheckpointError(f"{path}: weight {name} is not finite")


def sharing_copy(base: PreTrainedModel) -> PreTrainedModel:
    """A model of its own whose parameters and buffers share the base's storage until they are replaced."""
    memo: dict[int, Any] = {}
    for parameter in base.parameters():
        memo[id(parameter)] = torch.nn.Parameter(parameter.data, requires_grad=False)
    for buffer in base.buffers():
        memo[id(buffer)] = buffer
    return copy.deepcopy(base, memo)


def _load_adapter(folder: Path, base: PreTrainedModel) -> PreTrainedModel:
    try:
        config = json.loads((folder / ADAPTER_CONFIG).read_text())
        weights = load_file(folder / ADAPTER_WEIGHTS)
    except (OSError, ValueError, SafetensorError) as error:
        raise CheckpointError(f"{folder}: the adapter cannot be read: {_first_line(error)}") from error
    for name, weight in weights.items():
        if not bool(torch.isfinite(weight).all()):
            raise CheckpointError(f"{folder}: weight {name} is not finite")
    model = sharing_copy(base)
    unusual = {name for name, value in config.items() if value and name not in _PLAIN_LORA} - {"bias"}
    if config.get("peft_type") == "LORA" and config.get("bias", "none") == "none" and not unusual:
        _add_lora(model, config, weights, folder)
    else:
        model = _add_with_peft(model, folder)
    model.requires_grad_(False)
    model.eval()
    return model


def _add_lora(model: PreTrainedModel, config: dict[str, Any], weights: dict[str, torch.Tensor], folder: Path) -> None:
    """Add `scale * B @ A` to each weight that the adapter names (Hu et al. 2021, section 4.1; names as PEFT writes
    them), or keep it next to a weight in half precision.
    """
    prefix, down, up = "base_model.model.", ".lora_A.weight", ".lora_B.weight"
    modules = dict(model.named_modules())
    for name in weights:
        if not (name.startswith(prefix) and name.endswith((down, up))):
            raise CheckpointError(f"{folder}: unexpected weight {name} in a LoRA adapter")
    names = sorted(name[len(prefix) : -len(down)] for name in weights if name.endswith(down))
    if not names or len(weights) != 2 * len(names):
        raise CheckpointError(f"{folder}: LoRA weights come in pairs of lora_A and lora_B; these do not")
    for name in names:
        module = modules.get(name)
        if not isinstance(module, torch.nn.Linear):
            raise CheckpointError(f"{folder}: the base has no linear layer {name}")
        first, second = weights[prefix + name + down], weights.get(prefix + name + up)
        if second is None or second.shape[0] != module.out_features or first.shape[1] != module.in_features:
            raise CheckpointError(f"{folder}: the LoRA weights of {name} do not fit the base")
        if first.shape[0] != second.shape[1]:
            raise CheckpointError(f"{folder}: the LoRA weights of {name} are not of one rank")
        old, scale = module.weight, config["lora_alpha"] / first.shape[0]
        if old.dtype != torch.float32:
            model.set_submodule(name, LoraLinear(module, first, second, scale))
            continue
        change = (second.to(old.device, torch.float32) @ first.to(old.device, torch.float32)) * scale
        module.weight = torch.nn.Parameter((old.float() + change).to(old.dtype), requires_grad=False)


def _add_with_peft(model: PreTrainedModel, folder: Path) -> PreTrainedModel:
    """The same by PEFT, whose layers stay in the model where the base is in half precision."""
    from peft import PeftModel

    try:
        wrapped = PeftModel.from_pretrained(model, str(folder))
        single = next(model.parameters()).dtype == torch.float32
        merged = wrapped.merge_and_unload(safe_merge=True) if single else wrapped.get_base_model()
    except (OSError, ValueError, RuntimeError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{folder}: the adapter does not fit the base: {_first_line(error)}") from error
    check_finite(merged, str(folder))
    return merged


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
