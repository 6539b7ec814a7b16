"""Attention over packed rows: one forward pass for sequences of any lengths, with no padding.

The tokens of all rows are one sequence of batch size 1, through transformers' own model code. Attention goes row by row
over the row's keys and values (transformers' `AttentionInterface`); rows with one token each in the same pool share a
call. Works for full and sliding-window attention with `_supports_attention_backend`; `decoding.Runner` checks the model
and else runs rows one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from openclaw_rl.trainer_local.embedded.kv_pool import CachedRow, Pool

NAME = "openclaw_rl_rows"
_SPARSE = 2  # a group is computed together while its slots are at least one in so many of those between first and last


@dataclass(frozen=True)
class PackedSpan:
    """Packed positions `start` to `end` are the next tokens of `row`."""

    row: CachedRow
    start: int
    end: int


@dataclass
class _Group:
    """Packed positions `start` to `end` are one token each of rows in slots `low` to `high` of one pool."""

    pool: Pool
    start: int
    end: int
    low: int
    high: int
    longest: int
    slots: torch.Tensor
    lengths: torch.Tensor
    masks: dict[int | None, torch.Tensor] = field(default_factory=dict)


class _Step:
    """The current forward pass; all model work is in one thread."""

    spans: Sequence[PackedSpan] = ()
    work: Sequence[PackedSpan | _Group] = ()


def begin(spans: Sequence[PackedSpan], device: torch.device | None = None) -> None:
    """Set the rows of the next forward pass, in the order of their places, and reserve their room."""
    for span in spans:
        span.row.reserve(span.row.length + span.end - span.start)
    work: list[PackedSpan | _Group] = []
    for (_, single), members in groupby(spans, key=lambda span: (id(span.row.pool), span.end - span.start == 1)):
        together = list(members)
        group = _group(together, device) if single and len(together) > 1 else None
        work.extend(together if group is None else [group])
    _Step.spans, _Step.work = spans, work


def finish() -> None:
    """Count the tokens of the finished forward pass."""
    for span in _Step.spans:
        span.row.length += span.end - span.start
    _Step.spans, _Step.work = (), ()


def _group(spans: list[PackedSpan], device: torch.device | None) -> _Group | None:
    """Rows of one pool as a group, `None` if they are faster one by one."""
    slots = [span.row.slot for span in spans]
    lengths = [span.row.length for span in spans]
    if slots[-1] - slots[0] >= _SPARSE * len(slots) or slots != sorted(slots):
        return None
    pool = spans[0].row.pool
    assert pool is not None
    return _Group(
        pool=pool,
        start=spans[0].start,
        end=spans[-1].end,
        low=slots[0],
        high=slots[-1] + 1,
        longest=max(lengths) + 1,
        slots=torch.tensor(slots, device=device),
        lengths=torch.tensor(lengths, device=device),
    )


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
    for item in _Step.work:
        q, k, v = (tensor[0, :, item.start : item.end] for tensor in (query, key, value))
        if isinstance(item, _Group):
            outputs.append(_attend_group(item, layer, q, k, v, scaling, sliding_window))
        else:
            keys, values = item.row.store(layer, k, v)
            outputs.append(_attend(q, keys, values, scaling, sliding_window))
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


def _attend_group(
    group: _Group,
    layer: int,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scaling: float | None,
    window: int | None,
) -> torch.Tensor:
    """One token for each row of a group, query `[heads, rows, dim]`; returns `[rows, heads, dim]`."""
    heads, count, dim = query.shape
    keys, values = group.pool.buffers(layer, key, value)
    keys[group.slots, :, group.lengths] = key.transpose(0, 1)
    values[group.slots, :, group.lengths] = value.transpose(0, 1)
    keys = keys[group.low : group.high, :, : group.longest]
    values = values[group.low : group.high, :, : group.longest]
    grouped = query.transpose(0, 1).reshape(count, keys.shape[1], -1, dim)
    whole = count == group.high - group.low
    if not whole:  # slots in between that take no part get a query of zeros and no reader
        spread = grouped.new_zeros((group.high - group.low, *grouped.shape[1:]))
        spread[group.slots - group.low] = grouped
        grouped = spread
    mask = _group_mask(group, window, query)
    output = scaled_dot_product_attention(grouped, keys, values, attn_mask=mask, scale=scaling)
    if not whole:
        output = output[group.slots - group.low]
    return output.reshape(count, heads, -1)


def _group_mask(group: _Group, window: int | None, like: torch.Tensor) -> torch.Tensor:
    """Additive mask `[slots, 1, 1, longest]`: each row sees its own positions, the newest ones within a window."""
    mask = group.masks.get(window)
    if mask is None:
        position = torch.arange(group.longest, device=like.device)
        lengths = group.lengths.new_zeros(group.high - group.low)
        lengths[group.slots - group.low] = group.lengths
        hidden = position > lengths[:, None]
        if window is not None:
            hidden |= position <= lengths[:, None] - window
        mask = like.new_zeros(hidden.shape).masked_fill_(hidden, float("-inf"))[:, None, None, :]
        group.masks[window] = mask
    return mask


def _causal_mask(count: int, total: int, groups: int, window: int | None, like: torch.Tensor) -> torch.Tensor:
    """Additive mask `[groups * count, total]`: query i stands at position total - count + i."""
    mask = torch.full((count, total), float("-inf"), dtype=like.dtype, device=like.device)
    mask = mask.triu_(total - count + 1)
    if window is not None:
        position = torch.arange(total, device=like.device)
        mask[(position[total - count :, None] - position[None, :]) >= window] = float("-inf")
    return mask.repeat(groups, 1) if groups > 1 else mask
