"""Checkpoints of a Megatron-core policy, and what other tools load of it, all by Hugging Face's and PEFT's names.

A checkpoint has the transformers trainer's own format: it does not depend on how many ranks wrote it, and that trainer
resumes it too.
"""

from __future__ import annotations

import copy
import pickle
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import save_torch_state_dict
from peft import LoraConfig
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoTokenizer

from openclaw_rl.shared.errors import TrainerError
from openclaw_rl.shared.files import whole_folder
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_local.megatron.distributed_optimizer import LAYOUT, SHARDS
from openclaw_rl.trainer_local.megatron.lora import DOWN, PREFIX, UP, file_name, parameter_name
from openclaw_rl.trainer_local.megatron.source import HEAD
from openclaw_rl.trainer_local.megatron.weights import Weights
from openclaw_rl.trainer_local.models.loading import check_scale
from openclaw_rl.trainer_local.models.weights import FORMAT, write_json

ADAPTER = "adapter_model.safetensors"


@dataclass(frozen=True)
class State:
    """All that a trainer must know to go on, whole, on rank 0."""

    weights: Mapping[str, Tensor]
    optimizer: Mapping[str, Any]
    step: int
    random_state: Mapping[str, Tensor]
    average: Mapping[str, Tensor] | None


@dataclass(frozen=True)
class Contents:
    """What there is in a state, for the ranks that do not have it. Without `weights` there is none: it is the base."""

    weights: bool = False
    optimizer: bool = False
    average: bool = False
    step: int = 0


def write(path: Path, state: State, weights: Weights, settings: Settings) -> None:
    """Write a checkpoint, complete or not at all."""
    with whole_folder(path) as folder:
        served = folder / "served"
        served.mkdir()
        if weights.lora:
            _write_adapter(served, state.weights, weights, settings)
        else:
            _write_whole(served, state.weights, weights, settings)
        held: dict[str, Any] = {
            "weights": dict(state.weights),
            "optimizer": dict(state.optimizer),
            "step": state.step,
            "random_state": dict(state.random_state),
        }
        if state.average is not None:
            held["average"] = dict(state.average)
        torch.save(held, folder / "trainer.pt")
        write_json(
            folder / "meta.json",
            {
                "format": FORMAT,
                "trainer": "megatron",
                "step": state.step,
                "model": settings.model,
                "lora": weights.lora,
                "lora_alpha": settings.lora_alpha if weights.lora else None,
                "tensor_parallel": weights.world.tensor_parallel,
                "data_parallel": weights.world.data_parallel,
            },
        )


def read(path: Path, weights: Weights, settings: Settings) -> tuple[State, Contents]:
    """A checkpoint that fits `weights`. Raises `TrainerError`."""
    file = path / "trainer.pt"
    try:
        held = torch.load(file, map_location="cpu", weights_only=True)
        state = State(held["weights"], held["optimizer"], int(held["step"]), held["random_state"], held.get("average"))
    except (OSError, RuntimeError, KeyError, TypeError, EOFError, pickle.UnpicklingError) as error:
        raise TrainerError(f"{file} is no checkpoint that can be read: {error}") from error
    check_scale(path, settings)
    _check(state.weights, weights)
    _check_optimizer(file, state.optimizer, weights)
    found = state.optimizer.get("state") or state.optimizer.get(SHARDS)
    if found and SHARDS not in state.optimizer and set(found) != set(range(len(weights.names))):
        raise TrainerError(f"{file}: its optimizer has other weights than the settings train (lora, lora_targets)")
    return state, Contents(True, bool(found), state.average is not None, state.step)


def export(path: Path, whole: Mapping[str, Tensor], weights: Weights, settings: Settings) -> None:
    """A Hugging Face folder with all weights and tokenizer, adapters merged in."""
    if weights.lora:
        scale = settings.lora_alpha / settings.lora_rank
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
    with whole_folder(path) as folder:
        _write_whole(folder, whole, weights, settings)


def _check_optimizer(file: Path, optimizer: Mapping[str, Any], weights: Weights) -> None:
    """Raise `TrainerError` for a DistributedOptimizer's state where another one, or none, is wanted."""
    world = weights.world
    if (SHARDS in optimizer) != weights.shared:
        written, now = ("with", "without") if SHARDS in optimizer else ("without", "with")
        raise TrainerError(f"{file} was written {written} distributed_optimizer and cannot be resumed {now} it")
    if weights.shared and list(optimizer[LAYOUT]) != [world.size, world.tensor_parallel]:
        size, parts = optimizer[LAYOUT]
        raise TrainerError(
            f"{file} holds an optimizer that {size} processes with tensor_parallel = {parts} share, and these are "
            f"{world.size} with {world.tensor_parallel}: resume it with as many, or train without distributed_optimizer"
        )


def _check(found: Mapping[str, Tensor], weights: Weights) -> None:
    if found.keys() != weights.shapes.keys():
        raise TrainerError("The checkpoint holds other weights than the settings train (model, lora, lora_targets)")
    for name, shape in weights.shapes.items():
        if tuple(found[name].shape) != shape:
            raise TrainerError(
                f"{name} is {tuple(found[name].shape)} in the checkpoint and {shape} with these settings (lora_rank)"
            )


def _write_adapter(folder: Path, whole: Mapping[str, Tensor], weights: Weights, settings: Settings) -> None:
    modules = [name.removeprefix(PREFIX).rpartition(f".{UP}")[0] for name in whole if f".{UP}." in name]
    config = LoraConfig(
        r=settings.lora_rank,
        lora_alpha=settings.lora_alpha,
        lora_dropout=settings.lora_dropout,
        target_modules=_short(modules, weights.shape.layers),
        task_type="CAUSAL_LM",
        base_model_name_or_path=settings.model,
        inference_mode=True,
    )
    config.save_pretrained(str(folder))
    save_file({file_name(name): part.contiguous() for name, part in whole.items()}, folder / ADAPTER, {"format": "pt"})


def _short(modules: list[str], layers: int) -> list[str]:
    """Names that mean these modules and no others: the last words, where every layer has the same."""
    last = {module.rpartition(".")[2] for module in modules}
    return sorted(last) if len(modules) == layers * len(last) else modules


def _write_whole(folder: Path, whole: Mapping[str, Tensor], weights: Weights, settings: Settings) -> None:
    """A Hugging Face folder in the precision that the model computes in."""
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
    AutoTokenizer.from_pretrained(settings.tokenizer_path).save_pretrained(folder)
