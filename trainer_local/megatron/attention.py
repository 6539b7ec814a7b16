"""Attention over packed sequences, for Megatron-core's layers: torch's kernels in place of its unfused one, which holds
the scores of all pairs of tokens.

A packed sequence consists of runs, each of which sees slices before it, and itself causally (`prefix.tree.Run`).
So each run is one call: queries of the run, keys and values of what it sees, causal from the lower right corner. No
other score is computed, and on CUDA no mask is made. Branches are one call together where FlexAttention can be used
(`prefix.branch_attention`); else each takes copies of the keys and values that it sees.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.attention import sdpa_kernel
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from openclaw_rl.trainer_local.megatron.fused import rotate
from openclaw_rl.trainer_local.prefix.branch_attention import BranchAttention
from openclaw_rl.trainer_local.prefix.tree import Run
from openclaw_rl.trainer_local.training.attention_kernels import long_sequence_kernels


class CurrentSequence:
    """The packed sequence that is in the model, for all its layers. `places` are cosines and sines `[N, 1, 1, d]` of
    its rotary positions.
    """

    places: tuple[Tensor, Tensor] | None = None

    def __init__(self, runs: Sequence[Run] = ()) -> None:
        self.put(runs)

    def put(self, runs: Sequence[Run]) -> None:
        """Let `runs` be in the model; without one, nothing is."""
        self.places = None
        self.runs, self.branches = tuple(runs), BranchAttention(runs, {})


class PackedAttention(torch.nn.Module):
    """Replaces a layer's core attention: `partial(PackedAttention, current)` takes what Megatron-core passes."""

    def __init__(self, current: CurrentSequence, *, softmax_scale: float | None = None, **_: Any) -> None:
        super().__init__()
        self._current = current
        self._scale = softmax_scale

    def forward(self, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> Tensor:
        """Output `[N, 1, heads · d]` from queries `[N, 1, heads, d]`, keys and values `[N, 1, groups, d]`, the first
        two of them not rotated yet.
        """
        if self._current.places is not None:
            query, key = (rotate(part, *self._current.places) for part in (query, key))
        queries, keys, values = (part.permute(1, 2, 0, 3) for part in (query, key, value))  # [1, heads, N, d]
        runs, branches = self._current.runs, self._current.branches
        of_branches = branches.attend(queries, [keys], [values], self._scale)
        if of_branches is not None:
            runs = tuple(run for run in runs if run.begin < branches.begin)
        parts = [self._attend(run, queries, keys, values) for run in runs]
        if of_branches is not None:
            parts.append(of_branches)
        attended = parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)
        return attended.permute(2, 0, 1, 3).reshape(query.shape[0], 1, -1)

    def _attend(self, run: Run, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        if run.before and torch.is_grad_enabled():
            # Each branch concatenates what it sees. Kept for the backward pass, that would be a copy of the trunk for
            # every branch in every layer; it is recomputed instead.
            attended = checkpoint(
                self._branch, run, queries, keys, values, use_reentrant=False, preserve_rng_state=False
            )
        elif run.before:
            attended = self._branch(run, queries, keys, values)
        else:
            mine = slice(run.begin, run.end)
            kernels = long_sequence_kernels(queries.device, run.tokens)
            with sdpa_kernel(list(kernels), set_priority=True) if kernels else nullcontext():
                attended = scaled_dot_product_attention(
                    queries[:, :, mine],
                    keys[:, :, mine],
                    values[:, :, mine],
                    is_causal=True,
                    scale=self._scale,
                    enable_gqa=queries.shape[1] != keys.shape[1],
                )
        return cast(Tensor, attended)

    def _branch(self, run: Run, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        visible = [*run.before, (run.begin, run.end)]
        key, value = (torch.cat([part[:, :, begin:end] for begin, end in visible], dim=2) for part in (keys, values))
        return scaled_dot_product_attention(
            queries[:, :, run.begin : run.end],
            key,
            value,
            attn_mask=causal_lower_right(run.tokens, key.shape[2]),
            scale=self._scale,
            enable_gqa=queries.shape[1] != keys.shape[1],
        )
