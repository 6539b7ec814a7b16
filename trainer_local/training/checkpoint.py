"""The files of a checkpoint that a trainer resumes from: `trainer.pt` and `meta.json`, the same for every trainer."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from openclaw_rl.shared.errors import TrainerError
from openclaw_rl.shared.settings.settings import Settings

FORMAT = 1
ADAPTER_CONFIG = "adapter_config.json"


@dataclass(frozen=True)
class TrainerState:
    """Everything that training continues from. `weights` are the trained ones; `average` is their moving average."""

    weights: Mapping[str, Tensor]
    optimizer: Mapping[str, Any]
    step: int
    random_state: Mapping[str, Tensor]
    average: Mapping[str, Tensor] | None = None


def write_state(folder: Path, state: TrainerState, settings: Settings, *, trainer: str, **more: Any) -> None:
    """Write `state` into `folder`; `trainer` and `more` are for people who read `meta.json`."""
    fields = {name: dict(value) if isinstance(value, Mapping) else value for name, value in vars(state).items()}
    torch.save({name: value for name, value in fields.items() if value is not None}, folder / "trainer.pt")
    meta = {
        "format": FORMAT,
        "trainer": trainer,
        "step": state.step,
        "model": settings.engine.model,
        "lora": settings.learning.lora,
        "lora_alpha": settings.learning.lora_alpha if settings.learning.lora else None,
    }
    text = json.dumps(meta | more, indent=2, sort_keys=True)
    (folder / "meta.json").write_text(text + "\n", encoding="utf-8")


def read_state(checkpoint: Path, settings: Settings) -> TrainerState:
    """Read what `write_state` wrote, onto the CPU. Raises `TrainerError`."""
    file = checkpoint / "trainer.pt"
    try:
        saved = torch.load(file, map_location="cpu", weights_only=True)
        state = TrainerState(
            saved["weights"], saved["optimizer"], int(saved["step"]), saved["random_state"], saved.get("average")
        )
    except (OSError, RuntimeError, KeyError, TypeError, EOFError, pickle.UnpicklingError) as error:
        raise TrainerError(f"{file} is no checkpoint that can be read: {error}") from error
    if settings.learning.lora:
        _check_scale(checkpoint, settings)
    return state


def check_weights(found: Mapping[str, Tensor], wanted: Mapping[str, Sequence[int]]) -> None:
    """Raise `TrainerError` unless the weights have these names and shapes."""
    if found.keys() != wanted.keys():
        raise TrainerError("The checkpoint holds other weights than the settings train (model, lora, lora_targets)")
    for name, shape in wanted.items():
        if tuple(found[name].shape) != tuple(shape):
            raise TrainerError(
                f"{name} is {tuple(found[name].shape)} in the checkpoint and {tuple(shape)} with these settings "
                "(lora_rank)"
            )


def _check_scale(checkpoint: Path, settings: Settings) -> None:
    """Raise `TrainerError` where the adapter was trained at another scale: its weights would mean another policy."""
    for file in (checkpoint / "meta.json", checkpoint / "served" / ADAPTER_CONFIG):
        try:
            alpha = json.loads(file.read_text(encoding="utf-8")).get("lora_alpha")
        except (OSError, ValueError):
            continue
        if alpha is not None and alpha != settings.learning.lora_alpha:
            raise TrainerError(
                f"{checkpoint} was trained with lora_alpha = {alpha:g}, not {settings.learning.lora_alpha:g}: set it "
                "as it was, or begin with other data (--data)"
            )
