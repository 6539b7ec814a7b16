"""Devices that run out of memory, for tests on a CPU."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import torch
from torch import Tensor

REAL_LOSS = """
import torch

def loss(tokens):
    \"\"\"Ask torch for more memory than there is where more than MOST tokens come at once.\"\"\"
    if len(tokens.token_ids) > MOST:
        torch.empty(1 << 50, dtype=torch.uint8)
    return -tokens.logits.float().log_softmax(-1).gather(-1, tokens.token_ids[:, None])[:, 0]
"""
"""A custom loss with a real allocation failure."""


class SmallDevice:
    """Stands for a device that has room for passes of `tokens` tokens: the model raises torch's error above it.
    `failed` are the sizes of the passes that did not fit, `kept` how many of their tensors were alive at the next pass.
    """

    def __init__(self, model: Any, tokens: int) -> None:
        self.tokens = tokens
        self.failed: list[int] = []
        self.kept = 0
        self._made: list[weakref.ref[Tensor]] = []
        self._pass_failed = False
        layers = model.get_decoder().layers
        layers[-1].register_forward_hook(self._after)

    def _after(self, _: Any, __: Any, output: Any) -> None:
        hidden = output[0] if isinstance(output, tuple) else output
        if self._pass_failed:
            gc.collect()
            self.kept += sum(made() is not None for made in self._made)
            self._made.clear()
            self._pass_failed = False
        if hidden.shape[0] * hidden.shape[1] > self.tokens:
            self.failed.append(hidden.shape[0] * hidden.shape[1])
            self._made.append(weakref.ref(hidden))
            self._pass_failed = True
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.\nThis stands for a GPU")
