"""Attention over packed rows: one forward pass for sequences of any lengths, with no padding.

The tokens of all rows lie one after another in a single sequence of batch size 1. Everything but attention treats
tokens one by one, so transformers' own model code computes it; attention goes row by row, each over its own keys and
values, through transformers' `AttentionInterface`. That holds for every model whose class says
`_supports_attention_backend` and whose layers are full or sliding-window attention; `decoding.Runner` proves it for
the model at hand and else runs rows one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

NAME = "openclaw_rl_rows"
_FIRST_ROOM = 256  # tokens of room beyond the prompt when a row's buffers are made


class Row:
    """Keys and values of one sequence, per layer `[heads, capacity, dim]`; the first `length` positions are filled."""

    def __init__(self, capacity: int = 0) -> None:
        self.length = 0
        self.capacity = capacity
        self.keys: list[torch.Tensor] = []
        self.values: list[torch.Tensor] = []

    def reserve(self, tokens: int) -> None:
        """Make room for `tokens` positions in all."""
        if tokens <= self.capacity:
            return
        self.capacity = max(tokens + _FIRST_ROOM, self.capacity * 3 // 2)
        self.keys = [self._grown(tensor) for tensor in self.keys]
        self.values = [self._grown(tensor) for tensor in self.values]

    def store(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Write `[heads, n, dim]` after what is there; returns all keys and values up to and with them. `length` stays
        as it was."""
        if layer == len(self.keys):
            self.keys.append(key.new_empty((key.shape[0], self.capacity, key.shape[2])))
            self.values.append(value.new_empty((value.shape[0], self.capacity, value.shape[2])))
        end = self.length + key.shape[1]
        keys, values = self.keys[layer], self.values[layer]
        keys[:, self.length : end] = key
        values[:, self.length : end] = value
        return keys[:, :end], values[:, :end]

    def preload(self, keys: Sequence[torch.Tensor], values: Sequence[torch.Tensor]) -> None:
        """Append ready keys and values of the next positions (from the prefix cache), one tensor a layer."""
        if keys:
            self.reserve(self.length + keys[0].shape[1])
            for layer, (key, value) in enumerate(zip(keys, values, strict=True)):
                self.store(layer, key, value)
            self.length += keys[0].shape[1]

    def slices(self, start: int, end: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Copies of positions `start` to `end` of every layer."""
        return [k[:, start:end].clone() for k in self.keys], [v[:, start:end].clone() for v in self.values]

    def _grown(self, tensor: torch.Tensor) -> torch.Tensor:
        larger = tensor.new_empty((tensor.shape[0], self.capacity, tensor.shape[2]))
        larger[:, : self.length] = tensor[:, : self.length]
        return larger


@dataclass(frozen=True)
class Span:
    """Packed positions `start` to `end` are the next tokens of `row`."""

    row: Row
    start: int
    end: int


class _Step:
    """The spans of the forward pass that is under way; all model work is in one thread, so one at a time."""

    spans: Sequence[Span] = ()


def begin(spans: Sequence[Span]) -> None:
    """Announce the rows of the next forward pass and make room in them."""
    for span in spans:
        span.row.reserve(span.row.length + span.end - span.start)
    _Step.spans = spans


def finish() -> None:
    """The forward pass is over: its tokens now count."""
    for span in _Step.spans:
        span.row.length += span.end - span.start
    _Step.spans = ()


def packed_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    position_bias: torch.Tensor | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """transformers' attention function: query `[1, heads, tokens, dim]` and so on; returns `[1, tokens, heads, dim]`.

    Raises `NotImplementedError` for variants that it does not compute; such a model runs row by row.
    """
    if softcap is not None or s_aux is not None or position_bias is not None:
        raise NotImplementedError("attention with soft cap, sinks or position bias")
    layer = int(module.layer_idx)  # type: ignore[arg-type]
    outputs = []
    for span in _Step.spans:
        keys, values = span.row.store(layer, key[0, :, span.start : span.end], value[0, :, span.start : span.end])
        outputs.append(_attend(query[0, :, span.start : span.end], keys, values, scaling, sliding_window))
    output = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=0)
    return output.unsqueeze(0), None


def _attend(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scaling: float | None, window: int | None
) -> torch.Tensor:
    """Query `[heads, n, dim]` at the last n of the positions of `keys`; returns `[n, heads, dim]`."""
    heads, count, dim = query.shape
    shared = keys.shape[0]
    if window is not None and keys.shape[1] > window + count - 1:
        keys, values = keys[:, -(window + count - 1) :], values[:, -(window + count - 1) :]
    # Query heads that share a key head stand in the same row of queries: no key is copied.
    grouped = query.reshape(1, shared, heads // shared * count, dim)
    mask = None if count == 1 else _causal_mask(count, keys.shape[1], heads // shared, window, query)
    output = scaled_dot_product_attention(grouped, keys[None], values[None], attn_mask=mask, scale=scaling)
    return output.reshape(heads, count, -1).transpose(0, 1)


def _causal_mask(count: int, total: int, groups: int, window: int | None, like: torch.Tensor) -> torch.Tensor:
    """Additive mask `[groups * count, total]`: query i stands at position total - count + i."""
    mask = torch.full((count, total), float("-inf"), dtype=like.dtype, device=like.device)
    mask = mask.triu_(total - count + 1)
    if window is not None:
        position = torch.arange(total, device=like.device)
        mask[(position[total - count :, None] - position[None, :]) >= window] = float("-inf")
    return mask.repeat(groups, 1) if groups > 1 else mask
