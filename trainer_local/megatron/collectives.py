"""Differentiable collectives of tensor-parallel ranks.

Megatron-core (0.16.1) has them as well, but its sums are lost where a tensor is not contiguous, and its gathering runs
on CUDA alone.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function


def reduce_parts(part: Tensor, group: Any) -> Tensor:
    """The sum of the `part`s of all ranks. Each part gets the gradient of the sum, which every rank has."""
    return cast(Tensor, _Reduce.apply(part, group))


def copy_to_parts(whole: Tensor, group: Any) -> Tensor:
    """`whole`, which all ranks have, before each uses it for a part: its gradient is the sum of theirs."""
    return cast(Tensor, _Copy.apply(whole, group))


def gather_parts(part: Tensor, group: Any) -> Tensor:
    """The `part`s of all ranks, concatenated along the last dimension. Each gets its part of the gradient, since all
    ranks compute the same from there.
    """
    return cast(Tensor, _Gather.apply(part, group))


def sum_parts(tensor: Tensor, group: Any) -> Tensor:
    """The sum of all ranks' tensors, without gradients; on one rank the tensor itself."""
    return tensor if group.size() == 1 else _sum(tensor, group)


def _sum(tensor: Tensor, group: Any) -> Tensor:
    total = tensor.clone(memory_format=torch.contiguous_format)
    torch.distributed.all_reduce(total, group=group)
    return total


class _Reduce(Function):
    @staticmethod
    def forward(context: Any, part: Tensor, group: Any) -> Tensor:
        return _sum(part, group)

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        return gradients[0], None


class _Copy(Function):
    @staticmethod
    def forward(context: Any, whole: Tensor, group: Any) -> Tensor:
        context.group = group
        return whole.view_as(whole)

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        return _sum(gradients[0], context.group), None


class _Gather(Function):
    @staticmethod
    def forward(context: Any, part: Tensor, group: Any) -> Tensor:
        context.part = group.rank() * part.shape[-1], part.shape[-1]
        parts = [torch.empty_like(part, memory_format=torch.contiguous_format) for _ in range(group.size())]
        torch.distributed.all_gather(parts, part.contiguous(), group=group)
        return torch.cat(parts, dim=-1)

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        return gradients[0].narrow(-1, *context.part).contiguous(), None
