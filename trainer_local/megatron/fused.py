"""Element-wise parts of a layer as one kernel each, by torch's compiler, on CUDA.

These are rotary positions, compiled here, and SwiGLU, which Megatron-core compiles. They are used where both are
proven: before the model is made, they are computed for small tensors and compared with plain torch, forward and
backward. Where that fails, one line in the log says so, and plain torch computes them; likewise rotary positions that
do not compile for a later tensor. `TORCH_COMPILE_DISABLE=1` turns them off.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as F

from openclaw_rl.trainer_local.prefix.branch_attention import COMPILER_ERRORS
from openclaw_rl.trainer_local.training.memory_limit import is_out_of_memory

log = logging.getLogger(__name__)

TOLERANCE = 2e-2
"""Largest difference of the trial in bfloat16, relative to the largest number: a kernel rounds once, not thrice."""


def rotate(part: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Queries or keys `[N, 1, heads, d]` at their rotary positions (Su et al. 2021, in the halves' order of Llama), by
    cosines and sines `[N, 1, 1, d]`.
    """
    if fuses(part.device) and not FusedFailure.known:
        try:
            return _compiled()(part, cosines, sines)
        except COMPILER_ERRORS as error:
            if is_out_of_memory(error):
                raise
            FusedFailure.known = True
            _warn(error)
    return _rotated(part, cosines, sines)


class FusedFailure:
    """A failure to compile rotary positions in a pass, after which this process does not try again."""

    known = False


@cache
def fuses(device: torch.device) -> bool:
    """True if element-wise parts are compiled for a device; tried on the first call, outside of any pass."""
    if device.type != "cuda" or torch._dynamo.config.disable:
        return False
    try:
        differences = {"rotary positions": _rotation_trial(device), "SwiGLU": _swiglu_trial(device)}
    except Exception as error:  # whatever a compiler or a driver raises
        _warn(error)
        return False
    wrong = {name: value for name, value in differences.items() if not value <= TOLERANCE}  # NaN is none
    for name, value in wrong.items():
        log.warning("torch's compiler is not used: its %s differ by %.1e", name, value)
    return not wrong


def _warn(error: Exception) -> None:
    log.warning("torch's compiler cannot be used: %s: %s", type(error).__name__, str(error).partition("\n")[0])


def _rotated(part: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    left, right = part.chunk(2, -1)
    return part * cosines + torch.cat((-right, left), -1) * sines


@cache
def _compiled() -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    return torch.compile(_rotated, dynamic=True, fullgraph=True)


def _rotation_trial(device: torch.device) -> float:
    """The largest difference of compiled rotary positions and their gradient from plain torch's."""
    part, gradient, *places = _drawn(device, (37, 1, 4, 64), (37, 1, 4, 64), (37, 1, 1, 64), (37, 1, 1, 64))

    def compiled(part: Tensor) -> Tensor:
        return _compiled()(part, *places)

    with torch.no_grad():
        without = _difference([compiled(part)], [_rotated(part, *places)])
    return max(without, _trial(compiled, lambda part: _rotated(part, *places), part, gradient))


def _swiglu_trial(device: torch.device) -> float:
    """The largest difference of Megatron-core's SwiGLU and its gradient from plain torch's. Its kernel is made for the
    first number of tokens, and at the second for any.
    """
    from megatron.core.fusions.fused_bias_swiglu import bias_swiglu_impl

    def plain(part: Tensor) -> Tensor:
        gate, up = part.chunk(2, -1)
        return F.silu(gate) * up

    shapes = [((tokens, 1, 2 * 96), (tokens, 1, 96)) for tokens in (37, 53)]
    return max(_trial(lambda part: bias_swiglu_impl(part, None), plain, *_drawn(device, *each)) for each in shapes)


def _drawn(device: torch.device, *shapes: Sequence[int]) -> list[Tensor]:
    draw = torch.Generator(device).manual_seed(0)  # the global one is the trainer's
    return [torch.randn(*shape, generator=draw, device=device, dtype=torch.bfloat16) for shape in shapes]


def _trial(
    compiled: Callable[[Tensor], Tensor], plain: Callable[[Tensor], Tensor], part: Tensor, gradient: Tensor
) -> float:
    """The difference of two functions of `part` and of their gradients."""
    found = []
    for function in (compiled, plain):
        leaf = part.clone().requires_grad_()
        output = function(leaf)
        found.append([output.detach(), *torch.autograd.grad(output, leaf, gradient)])
    return _difference(*found)


def _difference(found: Sequence[Tensor], known: Sequence[Tensor]) -> float:
    """The largest difference, relative to the largest number; infinite where one is NaN."""
    differences = [(one - other).abs().max() / other.abs().max() for one, other in zip(found, known, strict=True)]
    return float(torch.stack(differences).max().nan_to_num(nan=torch.inf))
