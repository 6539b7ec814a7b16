"""Element-wise parts of a layer as one kernel each, by torch's compiler, on CUDA.

They are used where they are proven: before the model is made, rotary positions of a small tensor are compiled and
compared with plain torch, forward and backward. Where that fails, one line in the log says so, and plain torch computes
them; likewise rotary positions that do not compile for a later tensor. `TORCH_COMPILE_DISABLE=1` turns them off.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from openclaw_rl.trainer_local.prefix.branch_attention import COMPILER_ERRORS

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
        difference = _trial(device)
    except Exception as error:  # whatever a compiler or a driver raises
        _warn(error)
        return False
    if not difference <= TOLERANCE:  # NaN is none
        log.warning("torch's compiler is not used: its results differ by %.1e", difference)
    return difference <= TOLERANCE


def _warn(error: Exception) -> None:
    log.warning("torch's compiler cannot be used: %s: %s", type(error).__name__, str(error).partition("\n")[0])


def _rotated(part: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    left, right = part.chunk(2, -1)
    return part * cosines + torch.cat((-right, left), -1) * sines


@cache
def _compiled() -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    return torch.compile(_rotated, dynamic=True, fullgraph=True)


def _trial(device: torch.device) -> float:
    """The largest difference of the compiled function and its gradient from plain torch's."""
    draw = torch.Generator(device).manual_seed(0)  # the global one is the trainer's

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw, device=device, dtype=torch.bfloat16)

    part, gradient, places = random(37, 1, 4, 64), random(37, 1, 4, 64), [random(37, 1, 1, 64) for _ in range(2)]
    found = []
    for function in (_compiled(), _rotated):
        leaf = part.clone().requires_grad_()
        output = function(leaf, *places)
        found.append([output.detach(), *torch.autograd.grad(output, leaf, gradient)])
    with torch.no_grad():
        found[0].append(_compiled()(part, *places))
        found[1].append(found[1][0])
    differences = [(one - other).abs().max() / other.abs().max() for one, other in zip(*found, strict=True)]
    return float(torch.stack(differences).max())
