"""Attention over packed sequences, for Megatron-core's layers: torch's kernels in place of the unfused one, which holds
every score of every pair of tokens.

A packed sequence consists of runs, each of which sees slices before it, and itself causally (see `prefix_tree.Run`).
So each run is one call: queries of the run, keys and values of what it sees, causal from the lower right corner. What a
run does not see costs nothing, and on CUDA no mask is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention

from trainer_local.prefix_tree import Run


class Runs:
    """The runs of the sequence that is in the model just now, for all layers. It stays open during the backward pass
    too, where layers may be computed again.
    """

    def __init__(self) -> None:
        self._runs: Sequence[Run] = ()

    @contextmanager
    def of(self, runs: Sequence[Run]) -> Iterator[None]:
        """While the block runs, sequences in the model consist of `runs`."""
        self._runs = runs
        try:
            yield
        finally:
            self._runs = ()

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)


class PackedAttention(torch.nn.Module):
    """Takes the place of a layer's core attention; `runs` is filled, then called with what Megatron-core calls with."""

    def __init__(self, runs: Runs, *, softmax_scale: float | None = None, **_: Any) -> None:
        super().__init__()
        self._runs = runs
        self._scale = softmax_scale

    def forward(self, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> Tensor:
        """Of queries `[N, 1, heads, d]`, keys and values `[N, 1, groups, d]` of one sequence: `[N, 1, heads · d]`."""
        queries, keys, values = (part.permute(1, 2, 0, 3) for part in (query, key, value))  # [1, heads, N, d]
        parts = [self._attend(run, queries, keys, values) for run in self._runs]
        filled = query.shape[0] - sum(part.shape[2] for part in parts)
        if filled:
            parts.append(query.new_zeros(1, query.shape[2], filled, query.shape[3]))
        seen = parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)
        return seen.permute(2, 0, 1, 3).reshape(query.shape[0], 1, -1)

    def _attend(self, run: Run, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        query = queries[:, :, run.begin : run.end]
        seen = [*run.before, (run.begin, run.end)]
        if len(seen) == 1:
            return scaled_dot_product_attention(
                query,
                keys[:, :, run.begin : run.end],
                values[:, :, run.begin : run.end],
                is_causal=True,
                scale=self._scale,
                enable_gqa=queries.shape[1] != keys.shape[1],
            )
        # The kernels for this corner take no groups: the few tokens of a branch make repeating them cheap.
        repeats = queries.shape[1] // keys.shape[1]
        key, value = (
            torch.cat([part[:, :, begin:end] for begin, end in seen], dim=2).repeat_interleave(repeats, dim=1)
            for part in (keys, values)
        )
        corner = causal_lower_right(query.shape[2], key.shape[2])
        return scaled_dot_product_attention(query, key, value, attn_mask=corner, scale=self._scale)
