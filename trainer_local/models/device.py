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


WIDE = 512
"""Hidden size from which more than one thread makes a model faster on a CPU."""


def step_threads(hidden_size: int) -> int:
    """The number of threads for a step of a model of this width on a CPU: all cores, since the learner's process has a
    lower priority than the engine's.
    """
    return available_cores() if hidden_size >= WIDE else 1


def engine_threads(hidden_size: int) -> int:
    """The number of threads for the requests of a model of this width on a CPU: half the cores. A thread that waits for
    a core holds up all others, and a step may run on every core.
    """
    return max(1, available_cores() // 2) if hidden_size >= WIDE else 1


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
