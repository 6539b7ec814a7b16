"""The device that a model is on, and the cores of a CPU that it uses."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

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


def available_cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def cpu_threads(number: int) -> Iterator[None]:
    """Let torch use `number` cores in this thread while the block runs."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
