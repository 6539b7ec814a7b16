"""Two things that SGLang lacks on a machine without a GPU. `serve.py` here and that of sglang_cuda use them."""

from __future__ import annotations

import functools
import importlib.machinery
import sys
import types
from collections.abc import Callable
from typing import Any

import torch


def rotate(
    positions: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor | None,
    head_size: int,
    cos_sin_cache: torch.Tensor,
    is_neox: bool,
) -> None:
    """Rotary position embedding, in place; `is_neox` pairs the halves of a head, otherwise neighbours are paired.

    `positions` `[N]`; `query` and `key`, which may be missing, `[N, heads * head_size]` or `[N, heads, head_size]`;
    `cos_sin_cache` `[length, rotated]`.
    """
    angles = cos_sin_cache[positions.flatten()].float().unsqueeze(1)
    cosine, sine = angles.chunk(2, dim=-1)
    for states in (query, key):
        if states is None:
            continue
        part = states.view(len(angles), -1, head_size)[..., : angles.shape[-1]]
        if is_neox:
            first, second = part.float().chunk(2, dim=-1)
        else:
            first, second = part[..., ::2].float(), part[..., 1::2].float()
        turned = (first * cosine - second * sine, second * cosine + first * sine)
        part.copy_(torch.cat(turned, dim=-1) if is_neox else torch.stack(turned, dim=-1).flatten(-2))


def offer_rotary_embedding() -> None:
    """SGLang takes this operator from vLLM where there is no GPU; vLLM is large, and this is all that is used of it."""
    package, operators = types.ModuleType("vllm"), types.ModuleType("vllm._custom_ops")
    package.__path__ = []
    package.__spec__ = importlib.machinery.ModuleSpec("vllm", None, is_package=True)
    operators.__spec__ = importlib.machinery.ModuleSpec("vllm._custom_ops", None)
    operators.rotary_embedding = rotate  # type: ignore[attr-defined]
    sys.modules |= {"vllm": package, "vllm._custom_ops": operators}


def ignore_pinning() -> None:
    """Page-locked memory needs a CUDA driver: take the request for it away."""

    def unpinned(create: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(create)
        def call(*arguments: Any, **options: Any) -> Any:
            options.pop("pin_memory", None)
            return create(*arguments, **options)

        return call

    for name in ("tensor", "empty", "zeros", "ones", "full", "arange", "empty_like", "zeros_like"):
        setattr(torch, name, unpinned(getattr(torch, name)))
    torch.Tensor.pin_memory = lambda self, *_, **__: self  # type: ignore[method-assign]
