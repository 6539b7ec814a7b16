"""The order in which torch chooses its kernel for attention.

torch's own order may begin with cuDNN, which makes a plan for every new shape, and the lengths of prompts change in
every step. Its kernels for Hopper and later cards are faster, though: on long sequences a model's layers make up for
the plan (`bench.attention_kernels`).
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

ORDER = (
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,  # takes the masks that flash attention does not
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.MATH,
)


def attention_kernels(device: torch.device) -> AbstractContextManager[None]:
    """Let attention take the first kernel of `ORDER` that can compute it, while the block runs on a CUDA device."""
    return sdpa_kernel(list(ORDER), set_priority=True) if device.type == "cuda" else nullcontext()


CUDNN_TOKENS = 12288
"""Tokens of a causal sequence from which on cuDNN goes first. By `bench/results/gpu/h200/1-attention.json`, 36 layers
save more in one pass from there on than the plan costs: a sum, no step was timed with it.
"""


@cache
def long_sequence_kernels(device: torch.device, tokens: int) -> tuple[SDPBackend, ...]:
    """The order for a causal sequence of `tokens`, cuDNN first; empty where `attention_kernels` has the right one."""
    if device.type != "cuda" or tokens < CUDNN_TOKENS or torch.cuda.get_device_capability(device) < (9, 0):
        return ()
    return SDPBackend.CUDNN_ATTENTION, *(kernel for kernel in ORDER if kernel != SDPBackend.CUDNN_ATTENTION)
