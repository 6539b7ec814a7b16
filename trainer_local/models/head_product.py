"""The product of an output head in single precision.

In bfloat16 a logit between 16 and 32 is rounded to a multiple of 1/8, and logprobs with it. SGLang is started with
`--enable-fp32-lm-head`, so trainers compute alike: the products of bfloat16 numbers are exact in single precision, and
they are summed up in it.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function

BLOCK = 8192
"""Rows of a weight that are cast at once where a device has no such product of its own."""


def head_product(hidden: Tensor, weight: Tensor) -> Tensor:
    """`hidden` `[n, d]` · `weight` `[V, d]`ᵀ, `[n, V]`, in single precision at least; both have the same type, and so
    have their gradients.
    """
    if weight.dtype in (torch.bfloat16, torch.float16):
        return cast(Tensor, _Product.apply(hidden, weight))
    return torch.nn.functional.linear(hidden, weight)


class _Product(Function):
    @staticmethod
    def forward(context: Any, hidden: Tensor, weight: Tensor) -> Tensor:
        context.save_for_backward(hidden, weight)
        if hidden.is_cuda:
            return torch.mm(hidden, weight.t(), out_dtype=torch.float32)
        wide = hidden.float()
        return torch.cat([wide @ block.float().t() for block in weight.split(BLOCK)], dim=-1)

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        hidden, weight = context.saved_tensors
        (gradient,) = gradients
        for_hidden, for_weight = context.needs_input_grad
        if gradient.is_cuda:
            short = gradient.to(weight.dtype)  # as between all other layers
            return short @ weight if for_hidden else None, short.t() @ hidden if for_weight else None
        to_hidden = to_weight = None
        if for_hidden:
            pairs = zip(gradient.split(BLOCK, dim=-1), weight.split(BLOCK), strict=True)
            to_hidden = sum(part @ block.float() for part, block in pairs).to(hidden.dtype)
        if for_weight:
            wide = hidden.float()
            parts = gradient.split(BLOCK, dim=-1)
            to_weight = torch.cat([(part.t() @ wide).to(weight.dtype) for part in parts])
        return to_hidden, to_weight
