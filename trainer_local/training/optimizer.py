"""AdamW as a recipe describes it, and where its state lives between steps."""

from __future__ import annotations

import gc
from collections.abc import Iterable

import torch
from torch import Tensor

from openclaw_rl.shared.trainer import Recipe


def adamw(parameters: Iterable[Tensor], recipe: Recipe) -> torch.optim.AdamW:
    """A fresh optimizer over `parameters`."""
    return torch.optim.AdamW(
        parameters,
        lr=recipe.learning_rate,
        betas=(recipe.beta1, recipe.beta2),
        eps=recipe.epsilon,
        weight_decay=recipe.weight_decay,
    )


def follow(optimizer: torch.optim.Optimizer, recipe: Recipe, step: int) -> float:
    """Set the optimizer to what `recipe` says for step `step` (from 0); the learning rate."""
    rate = recipe.rate(step)
    for group in optimizer.param_groups:
        group.update(
            lr=rate,
            betas=(recipe.beta1, recipe.beta2),
            eps=recipe.epsilon,
            weight_decay=recipe.weight_decay,
        )
    return rate


def move_state(optimizer: torch.optim.Optimizer, device: torch.device) -> None:
    """Move the moments of every parameter to `device`; what is there stays. AdamW's step counters live on the host
    wherever the parameters are.
    """
    for state in optimizer.state.values():
        for name, part in state.items():
            if isinstance(part, Tensor) and name != "step" and part.device != device:
                state[name] = part.to(device)


def free_device_memory() -> None:
    """Give back what torch keeps of the GPU for later, with what an error still holds."""
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
