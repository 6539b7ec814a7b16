"""The random state of a trainer, apart from that of the process: torch's on the CPU, and its device's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor


def read_random_state(device: torch.device) -> dict[str, Tensor]:
    """The current state, for `random_state`."""
    state = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


@contextmanager
def random_state(device: torch.device, start: Mapping[str, Tensor] | int) -> Iterator[None]:
    """Draw from `start`, a state or a seed, while the block runs; the state of the process comes back after it."""
    cuda = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda):
        if isinstance(start, int):
            torch.manual_seed(start)
        else:
            torch.set_rng_state(start["cpu"])
            if cuda and "cuda" in start:
                torch.cuda.set_rng_state(start["cuda"], device)
        yield
