"""The order in which torch chooses its kernel for attention.

torch's own order may begin with cuDNN, which makes a plan for every new shape; the lengths of prompts change in every
step. `bench.megatron_gpu` measures both.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

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
