"""The number of layers that recompute their activations at a trainer's start: as few as free memory allows."""

from __future__ import annotations

import logging

import torch

from openclaw_rl.shared.placement import inherited_placement
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_local.placement import memory
from openclaw_rl.trainer_local.placement.model_shape import read_shape
from openclaw_rl.trainer_local.training.memory_limit import MemoryLimit

log = logging.getLogger(__name__)


def first_limit(
    settings: Settings, trainer: str, device: torch.device, layers: int, ranks: int = 1, *, compiled: bool = True
) -> MemoryLimit:
    """The limit that a trainer (`megatron`, `transformers`) on `ranks` devices starts with, before it loads its model.
    `layers` is the number of layers that can recompute their activations. `compiled`: torch's compiler can be used.
    """
    setting = settings.learning.recompute
    if setting == "auto":
        if device.type == "cpu":
            return MemoryLimit(layers=layers)
        needed = _needed(settings, trainer, device, layers, ranks, compiled)
        return MemoryLimit(recomputed=min(layers, needed), layers=layers)
    chosen = layers if setting else 0
    return MemoryLimit(recomputed=chosen, layers=chosen)


def _needed(settings: Settings, trainer: str, device: torch.device, layers: int, ranks: int, compiled: bool) -> int:
    """The number of layers; all where the memory of a step is unknown, or is free during steps only."""
    shape, placement = read_shape(settings.engine.model), inherited_placement()
    if shape is None or (placement is not None and placement.sharing == "alternating"):
        return layers
    free, whole = torch.cuda.mem_get_info(device)
    room = free - int(memory.KEPT_FREE * whole)
    needed = memory.layers_to_recompute(
        settings, shape, trainer, settings.gpu.tensor_parallel, ranks, room=room, compiled=compiled
    )
    log.info("%d of %d layers recompute their activations (%.1f GiB free)", needed, shape.layers, free / (1 << 30))
    return needed
