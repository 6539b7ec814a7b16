"""Recomputing activations in the backward pass (gradient checkpointing, arXiv 1604.06174): less memory, same gradients.

Transformers checkpoints layers in training mode only, so the layers alone are put into that mode for passes with
gradients. It drops their cache there, which prefix sharing (`trainer_local.prefix.attention`) does not need.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from transformers.modeling_layers import GradientCheckpointingLayer

from openclaw_rl.shared.errors import ConfigError


def recomputed_layers(model: Any, *, needed: bool = True) -> list[torch.nn.Module]:
    """The layers of `model` that can recompute their activations. If they are `needed` and it has none, raises
    `ConfigError`.
    """
    try:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    except (ValueError, NotImplementedError) as error:
        if not needed:
            return []
        raise ConfigError(f"recompute = true does not work for {type(model).__name__}: {error}") from error
    layers = [layer for layer in model.modules() if isinstance(layer, GradientCheckpointingLayer)]
    if needed and not layers:
        raise ConfigError(f"recompute = true does not work for {type(model).__name__}: set recompute = false")
    return layers


@contextmanager
def recomputing(layers: Sequence[torch.nn.Module]) -> Iterator[None]:
    """Let `layers` keep no activations while the block runs. Their parts (dropout) keep their mode."""
    modes = [layer.training for layer in layers]
    try:
        for layer in layers:
            layer.training = True
        yield
    finally:
        for layer, mode in zip(layers, modes, strict=True):
            layer.training = mode
