"""Attention of branches by FlexAttention on CUDA: keys and values that branches share are read where they are, by one
kernel for all branches.

It is used where it is proven: on its first use for a kind of input a small tree is computed, forward and backward, and
compared with torch's own attention. Where it does not compile or differs, one line in the log says so and the trainers
attend to copies instead. `TORCH_COMPILE_DISABLE=1` turns it off.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import cache, partial
from threading import Event, Thread
from typing import Any

import torch
from torch import Tensor
from torch._dynamo import exc
from torch.nn.attention.flex_attention import BlockMask, create_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from openclaw_rl.trainer_local.prefix.branch_mask import branch_mask, first_branch
from openclaw_rl.trainer_local.prefix.tree import PastSlice, Run
from openclaw_rl.trainer_local.training.memory_limit import is_out_of_memory

log = logging.getLogger(__name__)

KERNELS = 32
"""Most kernels that are compiled: one for sequences of any length, and some for what torch treats separately (without
gradients, a single block).
"""

COMPILER_ERRORS: tuple[type[Exception], ...] = (
    exc.TorchDynamoException,
    getattr(exc, "FailOnRecompileLimitHit", exc.TorchDynamoException),  # since torch 2.7, and no kind of the first
)
"""What a compiled function raises if it cannot be compiled for its arguments."""

TRIAL_SECONDS = 300.0
"""Time for the trial, which compiles the kernels."""

TOLERANCES = {torch.bfloat16: 2e-2, torch.float16: 5e-3, torch.float32: 1e-3}
"""Largest difference of the trial from torch's own attention, relative to the largest number."""

TRIED = (
    Run(0, 333, 0),
    Run(333, 420, 333, before=((0, 333),), past=(PastSlice(0, 0, 150),)),
    Run(420, 500, 200, before=((0, 200),), past=(PastSlice(0, 0, 150),)),
    Run(500, 611, 230, before=((0, 200), (420, 450)), past=(PastSlice(0, 0, 150),)),
)
"""A trunk, two branches and a branch of a branch, after `PAST`. No two sizes are equal, or the kernels would be
compiled for equal ones alone.
"""
PAST = {0: 170}


class BranchAttention:
    """The attention of the branches of one packed sequence, in every layer. `past` are the numbers of tokens of the
    earlier sequences that it sees, by their numbers.
    """

    def __init__(self, runs: Sequence[Run], past: Mapping[int, int]) -> None:
        self.begin = first_branch(runs)
        """The first token of the branches."""
        self._runs, self._past = runs, past
        self._mask: BlockMask | None = None

    def attend(
        self, query: Tensor, keys: Sequence[Tensor], values: Sequence[Tensor], scale: float | None
    ) -> Tensor | None:
        """Output `[1, heads, branch tokens, d]` of the sequence's `query` `[1, heads, tokens, d]`. `keys` and `values`
        `[1, groups, …, d]` are those of the earlier sequences, then its own. `None` where FlexAttention is not used.
        """
        heads, groups, width = query.shape[1], keys[0].shape[1], query.shape[3]
        if self.begin == query.shape[2] or not usable(query.device, query.dtype, heads, groups, width):
            return None
        if self._mask is None:
            self._mask = branch_mask(self._runs, self._past, query.device)
        branches, mask = query[:, :, self.begin :], self._mask

        def joined(*parts: Tensor) -> Tensor:
            key, value = (torch.cat(one, 2) if len(one) > 1 else one[0] for one in (parts[::2], parts[1::2]))
            return attention(branches, key, value, mask, scale)

        parts = [part for pair in zip(keys, values, strict=True) for part in pair]
        try:
            if len(keys) > 1 and torch.is_grad_enabled():
                # The joined keys are made again in the backward pass, so no layer keeps them.
                found: Tensor = checkpoint(joined, *parts, use_reentrant=False, preserve_rng_state=False)
                return found
            return joined(*parts)
        except COMPILER_ERRORS as error:
            if is_out_of_memory(error):
                raise
            _give_up(error)
            return None


def attention(query: Tensor, key: Tensor, value: Tensor, mask: BlockMask, scale: float | None) -> Tensor:
    """FlexAttention, compiled for sequences of any length."""
    with torch._dynamo.config.patch(recompile_limit=KERNELS):  # only newer torch takes it as an argument of `compile`
        found: Tensor = _compiled()(
            query,
            key,
            value,
            block_mask=mask,
            scale=scale,
            enable_gqa=query.shape[1] != key.shape[1],
            kernel_options={"BACKEND": "TRITON"},  # its kernel for short queries would be compiled as well
        )
    return found


@cache
def usable(device: torch.device, dtype: torch.dtype, heads: int, groups: int, width: int) -> bool:
    """True if FlexAttention can be used for such queries and keys; tried on the first call."""
    if device.type != "cuda" or torch._dynamo.config.disable or dtype not in TOLERANCES or FlexFailure.reason:
        return False
    try:
        difference = _in_time(partial(_trial, device, dtype, heads, groups, width))
    except Exception as error:  # whatever a compiler or a driver raises
        if is_out_of_memory(error):
            raise  # it says nothing of the kernels: the step is made again in smaller passes
        _give_up(error)
        return False
    if not difference <= TOLERANCES[dtype]:  # NaN is none
        _give_up(ArithmeticError(f"results of {dtype} differ by {difference:.1e}"))
        return False
    return True


def _in_time(trial: Callable[[], float]) -> float:
    """The result of `trial` in a thread of its own, where no checkpoint takes the tensors that its backward pass needs.
    A compiler that takes too long is left alone, and is no reason for the process to wait at its end. Until it ends no
    other function is compiled, since its lock would keep them waiting: plain torch computes them.
    """
    found: Future[float] = Future()
    late = Event()

    def work() -> None:
        try:
            found.set_result(trial())
        except BaseException as error:  # handed to the caller
            found.set_exception(error)
        if late.is_set():
            torch.compiler.set_stance("default")

    Thread(target=work, name="flex-trial", daemon=True).start()
    try:
        return found.result(TRIAL_SECONDS)
    except TimeoutError as error:
        late.set()
        torch.compiler.set_stance("force_eager")
        if found.done():
            torch.compiler.set_stance("default")
        raise TimeoutError(f"it was not compiled in {TRIAL_SECONDS:g} s") from error


class FlexFailure:
    """A failure of FlexAttention, after which this process does not use it."""

    reason = ""
    """The kind of the error and its first line; "" while nothing failed."""


def _give_up(error: Exception) -> None:
    if not FlexFailure.reason:
        FlexFailure.reason = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
        log.warning(
            "FlexAttention cannot be used, so shared prefixes are copied for each branch: %s", FlexFailure.reason
        )
    usable.cache_clear()


@cache
def _compiled() -> Callable[..., Any]:
    return torch.compile(flex_attention, dynamic=True, fullgraph=True)


def _trial(device: torch.device, dtype: torch.dtype, heads: int, groups: int, width: int) -> float:
    """The largest difference of outputs and gradients from torch's own attention on a small tree."""
    mask = branch_mask(TRIED, PAST, device)
    queries, keys = mask.shape[-2:]
    draw = torch.Generator(device).manual_seed(0)  # the global one is the trainer's

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, width, generator=draw, device=device, dtype=dtype)

    inputs = [random(1, heads, queries), *(random(1, groups, keys) for _ in range(2))]
    gradient, dense = random(1, heads, queries), create_mask(mask.mask_mod, 1, 1, queries, keys, str(device))

    def reference(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        key, value = (part.repeat_interleave(heads // groups, dim=1) for part in (key, value))
        return scaled_dot_product_attention(query, key, value, attn_mask=dense)

    found = []
    for compute in (lambda query, key, value: attention(query, key, value, mask, None), reference):
        leaves = [part.clone().requires_grad_() for part in inputs]
        output = compute(*leaves)
        found.append([output.detach(), *torch.autograd.grad(output, leaves, gradient)])
    with torch.no_grad():
        found[0].append(attention(inputs[0], inputs[1], inputs[2], mask, None))
        found[1].append(found[1][0])
    differences = [
        (one - other).abs().max() / other.abs().max().clamp(min=1e-6) for one, other in zip(*found, strict=True)
    ]
    return float(torch.stack(differences).max())  # NaN if one is, which Python's `max` may pass over
