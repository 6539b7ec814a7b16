"""Other weights than the current ones as a teacher: those a step began with, or their moving average."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor


@contextmanager
def wearing(parameters: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> Iterator[None]:
    """While the block runs, `parameters` hold `values` (same names and shapes); nothing is copied, and what they held
    comes back to the bit. No gradient may be computed inside.
    """
    own = {name: part.data for name, part in parameters.items()}
    try:
        for name, part in parameters.items():
            part.data = values[name]
        yield
    finally:
        for name, part in parameters.items():
            part.data = own[name]


def moved(average: Mapping[str, Tensor], parameters: Mapping[str, Tensor], decay: float) -> dict[str, Tensor]:
    """decay · average + (1 − decay) · parameters, as a new set of tensors (mean teacher, arXiv 1703.01780)."""
    with torch.no_grad():
        return {name: torch.lerp(part.detach(), average[name], decay) for name, part in parameters.items()}
