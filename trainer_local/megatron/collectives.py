"""What tensor-parallel ranks do together in a forward pass, with what that is in the backward pass.

Megatron-core has the first two as well, but its sums are lost where a tensor is not contiguous (0.16.1), and its
gathering runs on CUDA alone.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function


def summed(part: Tensor, group: Any) -> Tensor:
    """The sum of the `part`s of all ranks; each part gets the gradient of the sum, which is whole on every rank."""
    return cast(Tensor, _Summed.apply(part, group))


def shared(whole: Tensor, group: Any) -> Tensor:
    """`whole`, the same on all ranks, before each uses it for a part: its gradient is the sum of theirs."""
    return cast(Tensor, _Shared.apply(whole, group))


def gathered(part: Tensor, group: Any) -> Tensor:
    """The `part`s of all ranks side by side along the last dimension. Each gets its part of the gradient: all ranks go
    on alike from there.
    """
    return cast(Tensor, _Gathered.apply(part, group))


def _sum(tensor: Tensor, group: Any) -> Tensor:
    total = tensor.clone(memory_format=torch.contiguous_format)
    torch.distributed.all_reduce(total, group=group)
    return total


class _Summed(Function):
    @staticmethod
    def forward(context: Any, part: Tensor, group: Any) -> Tensor:
        return _sum(part, group)

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        return gradients[0], None


class _Shared(Function):
    @staticmethod
    def forward(context: Any, whole: Tensor, group: Any) -> Tensor:
        context.group = group
        return whole.view_as(whole)

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        return _sum(gradients[0], context.group), None


class _Gathered(Function):
    @staticmethod
    def forward(context: Any, part: Tensor, group: Any) -> Tensor:
        context.part = group.rank() * part.shape[-1], part.shape[-1]
        parts = [torch.empty_like(part, memory_format=torch.contiguous_format) for _ in range(group.size())]
        torch.distributed.all_gather(parts, part.contiguous(), group=group)
        return torch.cat(parts, dim=-1)

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        return gradients[0].narrow(-1, *context.part).contiguous(), None
