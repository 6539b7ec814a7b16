"""Checkpoints of a Megatron-core policy, and its export to folders of Hugging Face and PEFT.

A checkpoint has the transformers trainer's format: it does not depend on how many ranks wrote it, and that trainer
resumes it too.
"""

from __future__ import annotations

import copy
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import save_torch_state_dict
from peft import LoraConfig
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoTokenizer

from openclaw_rl.shared.errors import TrainerError
from openclaw_rl.shared.files import atomic_folder
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_local.megatron.distributed_optimizer import LAYOUT, SHARDS
from openclaw_rl.trainer_local.megatron.lora import DOWN, PREFIX, UP, file_name, parameter_name
from openclaw_rl.trainer_local.megatron.shape import Shape
from openclaw_rl.trainer_local.megatron.weight_names import HEAD
from openclaw_rl.trainer_local.megatron.weights import RankWeights
from openclaw_rl.trainer_local.training.checkpoint import TrainerState, check_weights, read_state, write_state

ADAPTER = "adapter_model.safetensors"


@dataclass(frozen=True)
class Contents:
    """The parts that a state has, for ranks that do not have the state; without `weights` it is the base."""

    weights: bool = False
    optimizer: bool = False
    average: bool = False
    step: int = 0


def write(path: Path, state: TrainerState, weights: RankWeights, settings: Settings) -> None:
    """Write a checkpoint, complete or not at all."""
    with atomic_folder(path) as folder:
        served = folder / "served"
        served.mkdir()
        if weights.lora:
            _write_adapter(served, state.weights, weights, settings)
        else:
            _write_full(served, state.weights, weights, settings)
        layout = {"tensor_parallel": weights.group.tensor_parallel, "data_parallel": weights.group.data_parallel}
        write_state(folder, state, settings, trainer="megatron", **layout)


def read(path: Path, weights: RankWeights, settings: Settings) -> tuple[TrainerState, Contents]:
    """Read a checkpoint that fits `weights`. Raises `TrainerError`."""
    file = path / "trainer.pt"
    state = read_state(path, settings)
    check_weights(state.weights, weights.shapes)
    _check_optimizer(file, state.optimizer, weights)
    found = state.optimizer.get("state") or state.optimizer.get(SHARDS)
    if found and SHARDS not in state.optimizer and set(found) != set(range(len(weights.names))):
        raise TrainerError(f"{file}: its optimizer has other weights than the settings train (lora, lora_targets)")
    return state, Contents(True, bool(found), state.average is not None, state.step)


def export(path: Path, whole: Mapping[str, Tensor], weights: RankWeights, settings: Settings) -> None:
    """Write a Hugging Face folder with all weights and the tokenizer, adapters merged in."""
    if weights.lora:
        scale = settings.learning.lora_alpha / settings.learning.lora_rank
        modules = {name.removeprefix(PREFIX).rpartition(f".{UP}")[0] for name in whole if f".{UP}." in name}
        merged = {}
        for name in weights.source.files:
            tensor = weights.source.tensor(name).float()
            module = name.removesuffix(".weight")
            if module in modules:
                down, up = (whole[parameter_name(module, side)] for side in (DOWN, UP))
                tensor = tensor + scale * (up @ down)
            merged[name] = tensor.to(weights.dtype)
        whole = merged
    with atomic_folder(path) as folder:
        _write_full(folder, whole, weights, settings)


def _check_optimizer(file: Path, optimizer: Mapping[str, Any], weights: RankWeights) -> None:
    """Raise `TrainerError` for the state of another kind of optimizer, or of other shards."""
    group = weights.group
    if (SHARDS in optimizer) != weights.shared:
        written, now = ("with", "without") if SHARDS in optimizer else ("without", "with")
        raise TrainerError(f"{file} was written {written} distributed_optimizer and cannot be resumed {now} it")
    if weights.shared and list(optimizer[LAYOUT]) != [group.size, group.tensor_parallel]:
        size, parts = optimizer[LAYOUT]
        raise TrainerError(
            f"{file} holds an optimizer that {size} processes with tensor_parallel = {parts} shard, and these are "
            f"{group.size} with {group.tensor_parallel}: resume it with as many, or train without distributed_optimizer"
        )


def _write_adapter(folder: Path, whole: Mapping[str, Tensor], weights: RankWeights, settings: Settings) -> None:
    modules = [name.removeprefix(PREFIX).rpartition(f".{UP}")[0] for name in whole if f".{UP}." in name]
    config = LoraConfig(
        r=settings.learning.lora_rank,
        lora_alpha=settings.learning.lora_alpha,
        lora_dropout=settings.learning.lora_dropout,
        target_modules=_short(modules, weights.shape),
        task_type="CAUSAL_LM",
        base_model_name_or_path=settings.engine.model,
        inference_mode=True,
    )
    config.save_pretrained(str(folder))
    save_file({file_name(name): part.contiguous() for name, part in whole.items()}, folder / ADAPTER, {"format": "pt"})


def _short(modules: list[str], shape: Shape) -> list[str]:
    """Names that match these modules and no others: the last words, where all layers, and experts, have the same."""
    last = {module.rpartition(".")[2] for module in modules}
    every = sum(projection.count for projection in shape.projections if projection.name in last)
    return sorted(last) if len(modules) == every else modules


def _write_full(folder: Path, whole: Mapping[str, Tensor], weights: RankWeights, settings: Settings) -> None:
    """Write a Hugging Face folder in the precision that the model computes in."""
    tensors = {name: part.to(weights.dtype).contiguous() for name, part in whole.items()}
    if weights.shape.tied:
        tensors.pop(HEAD, None)
    save_torch_state_dict(tensors, folder, metadata={"format": "pt"})
    config = copy.deepcopy(weights.source.config)
    config.dtype = weights.dtype
    config.save_pretrained(folder)
    generation = weights.source.folder / "generation_config.json"
    if generation.exists():
        shutil.copy(generation, folder)
    AutoTokenizer.from_pretrained(settings.engine.tokenizer_path).save_pretrained(folder)
