"""The device that a model is on."""

from __future__ import annotations

import torch

from openclaw_rl.shared.errors import ConfigError


def choose_device(name: str) -> torch.device:
    """The device that a setting names; `auto` is CUDA where there is one. Raises `ConfigError`."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"device = {name!r} is no torch device: use auto, cpu, cuda or cuda:N") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device = {name!r}, but torch finds no CUDA device: use cpu or auto")
    return device
