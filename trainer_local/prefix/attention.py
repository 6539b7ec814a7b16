"""Attention of packed sequences in which each token sees the tokens before it in its own row (`prefix_tree.Packed`).

It replaces a model's attention while a tree runs (Transformers' `AttentionInterface`), needs no cache, goes through
gradient checkpointing, and computes with PyTorch's `scaled_dot_product_attention` on every device.

- A trunk is ordinary causal attention, without a mask.
- Branches are one call of FlexAttention where it can be used (`prefix.branch_attention`): it needs a compiler and has
  no gradients on a CPU.
- Else they attend to slices of the trunk's keys and values, a few at a time, under a mask of limited size (`Grain`); a
  dense mask would be mostly empty. Long branches on a GPU are one causal call aligned at the bottom right, which needs
  no mask there. The slices are copied again in the backward pass instead of kept, so a hundred branches hold the trunk
  once.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.bias import causal_lower_right
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from openclaw_rl.shared.errors import TrainerError
from openclaw_rl.trainer_local.prefix.branch_attention import BranchAttention
from openclaw_rl.trainer_local.prefix.tree import Packed, Run

NAME = "prefix_tree"
"""Name of this attention in Transformers."""

OWN = -1
"""Stands for the packed sequence itself where slices name one."""

WASTE = 1.25
"""Maximum size of a mask relative to its visible part."""

Layer = tuple[Tensor, Tensor]
"""Keys and values `[1, heads, tokens, d]`."""

_UNKNOWN = ("softcap", "s_aux", "position_bias", "sliding_window", "cache")


@dataclass(frozen=True)
class Grain:
    """Limits of one call: `step` queries of a branch, masks of about `largest` elements, `slack` of them hidden.
    A branch of more than `aligned` tokens is one causal call.
    """

    step: int
    largest: int
    slack: int
    aligned: int = sys.maxsize


ON_CPU = Grain(step=128, largest=1 << 21, slack=1 << 14)
"""Calls are cheap; an estimate, not measured by a committed program."""

ON_GPU = Grain(step=1024, largest=1 << 24, slack=1 << 20, aligned=1024)
"""Fewer calls; an estimate too."""


@dataclass(frozen=True)
class _Block:
    """Tokens `begin` to `end` of one run."""

    run: Run
    begin: int
    end: int

    def sees(self) -> Iterable[tuple[int, int, int]]:
        """`(sequence, begin, end)` of all that its last token sees, in order of position."""
        yield from ((part.sequence, part.begin, part.end) for part in self.run.past)
        yield from ((OWN, begin, end) for begin, end in self.run.before)
        yield OWN, self.run.begin, self.end

    @property
    def visible(self) -> int:
        """Tokens that its last token sees."""
        return self.run.visible + self.end - self.run.begin


@dataclass(frozen=True)
class _Call:
    """One attention: queries `begin` to `end`. Without `slices` they are their own keys, with them those are. `mask`
    `[queries, keys]` is added; none is causal, the last query seeing all.
    """

    begin: int
    end: int
    slices: Sequence[tuple[int, int, int]] = ()
    mask: Tensor | None = None


class PrefixAttention:
    """The attention of one packed sequence. `past` are keys and values of each layer, by sequence; with `keep` this
    sequence's own are there after the forward pass.
    """

    def __init__(self, packed: Packed, past: Mapping[int, Mapping[int, Layer]], *, keep: bool) -> None:
        self._kept: dict[int, Layer] = {}
        self._keeping = keep
        self._runs = packed.runs
        self._calls: dict[int, list[_Call]] = {}
        self._past = {
            number: past[number] for number in sorted({one.sequence for run in packed.runs for one in run.past})
        }
        self._branches: BranchAttention | None = None

    def take_kept(self) -> dict[int, Layer]:
        """Keys and values by layer, once: layers that are recomputed in the backward pass add nothing."""
        kept, self._kept, self._keeping = self._kept, {}, False
        return kept

    def __call__(
        self, module: Any, query: Tensor, key: Tensor, value: Tensor, *, scaling: float | None, dropout: float
    ) -> Tensor:
        """Output `[1, heads, tokens, d]` of one layer."""
        layer = module.layer_idx
        if self._keeping:
            self._kept[layer] = key, value
        past = [layers[layer] for layers in self._past.values()]
        of_branches = None if dropout else self._attend_branches([*past, (key, value)], query, scaling)
        end = query.shape[2] if of_branches is None else query.shape[2] - of_branches.shape[2]
        calls = self._calls_until(end, query)
        parts: list[Tensor] = []
        sizes = [*(call.end - call.begin for call in calls), query.shape[2] - end]
        own = zip(*(part.split(sizes, 2)[: len(calls)] for part in (query, key, value)), strict=True)
        sources = {OWN: (key, value)} | dict(zip(self._past, past, strict=True))
        flat = [part for pair in sources.values() for part in pair]
        plain = bool(dropout) or not torch.is_grad_enabled()
        for sliced, group in groupby(zip(calls, own, strict=True), lambda pair: bool(pair[0].slices)):
            if sliced and not plain:
                # Neighbors go together, so that gradients of keys and values are added up in one place.
                parts.append(_Sliced.apply([call for call, _ in group], list(sources), scaling, query, *flat))
                continue
            for call, (queries, keys, values) in group:
                if call.slices:
                    parts.append(_attend(call, queries, sources, scaling, dropout))
                else:
                    output, _ = sdpa_attention_forward(module, queries, keys, values, None, dropout, scaling)
                    parts.append(output.transpose(1, 2))
        if of_branches is not None:
            parts.append(of_branches)
        return parts[0] if len(parts) == 1 else torch.cat(parts, 2)

    def _attend_branches(self, sources: Sequence[Layer], query: Tensor, scaling: float | None) -> Tensor | None:
        """The branches' output by FlexAttention, from keys and values of the earlier sequences, then its own."""
        keys, values = zip(*sources, strict=True)
        if self._branches is None:
            tokens = {number: key.shape[2] for number, key in zip(self._past, keys, strict=False)}
            self._branches = BranchAttention(self._runs, tokens)
        return self._branches.attend(query, keys, values, scaling)

    def _calls_until(self, end: int, like: Tensor) -> list[_Call]:
        """The calls for the tokens before `end`; made once for all layers."""
        if end not in self._calls:
            grain = ON_CPU if like.device.type == "cpu" else ON_GPU
            runs = [run for run in self._runs if run.begin < end]
            self._calls[end] = [_call(blocks, like, grain) for blocks in _merge_blocks(runs, grain)]
        return self._calls[end]


@contextmanager
def attending_by_row(model: Any) -> Iterator[None]:
    """Let every layer of `model` use the `prefix_attention` that its call passes; open during backward passes too."""
    modules = [module for module in model.modules() if hasattr(module, "layer_idx") and hasattr(module, "config")]
    configs = {id(module.config): module.config for module in modules}.values()
    names = [config._attn_implementation for config in configs]
    try:
        for config in configs:
            config._attn_implementation = NAME
        yield
    finally:
        for config, name in zip(configs, names, strict=True):
            config._attn_implementation = name


class _Sliced(torch.autograd.Function):
    """Neighboring calls whose slices are copied again in the backward pass: no layer keeps the copies."""

    @staticmethod
    def forward(
        ctx: Any, calls: Sequence[_Call], names: Sequence[int], scaling: float | None, query: Tensor, *flat: Tensor
    ) -> Tensor:
        """`flat` are keys and values of the sequences `names`, in turn."""
        ctx.save_for_backward(query, *flat)
        ctx.calls, ctx.names, ctx.scaling = calls, names, scaling
        sources = _paired(names, flat)
        return torch.cat(
            [_attend(call, query[:, :, call.begin : call.end], sources, scaling, 0.0) for call in calls], 2
        )

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of queries, keys and values, added up over the calls."""
        query, *flat = ctx.saved_tensors
        sources = _paired(ctx.names, flat)
        query_gradient = torch.zeros_like(query)
        gradients = _paired(ctx.names, [torch.zeros_like(part) for part in flat])
        first = ctx.calls[0].begin
        for call in ctx.calls:
            sliced = (query[:, :, call.begin : call.end], *_slices(call, sources))
            inputs = [part.detach().requires_grad_() for part in sliced]
            with torch.enable_grad():
                output = _kernel(call, inputs[0], inputs[1], inputs[2], ctx.scaling, 0.0)
            of_query, of_key, of_value = torch.autograd.grad(
                output, inputs, gradient[:, :, call.begin - first : call.end - first]
            )
            query_gradient[:, :, call.begin : call.end] = of_query
            at = 0
            for name, begin, end in call.slices:
                for total, part in zip(gradients[name], (of_key, of_value), strict=True):
                    total[:, :, begin:end] += part[:, :, at : at + end - begin]
                at += end - begin
        return None, None, None, query_gradient, *(part for name in ctx.names for part in gradients[name])


def _paired(names: Sequence[int], flat: Sequence[Tensor]) -> dict[int, Layer]:
    return {name: (flat[2 * index], flat[2 * index + 1]) for index, name in enumerate(names)}


def _slices(call: _Call, sources: Mapping[int, Layer]) -> tuple[Tensor, Tensor]:
    keys, values = zip(
        *((sources[name][0][:, :, begin:end], sources[name][1][:, :, begin:end]) for name, begin, end in call.slices),
        strict=True,
    )
    return torch.cat(keys, 2), torch.cat(values, 2)


def _attend(call: _Call, query: Tensor, sources: Mapping[int, Layer], scaling: float | None, dropout: float) -> Tensor:
    return _kernel(call, query, *_slices(call, sources), scaling, dropout)


def _kernel(call: _Call, query: Tensor, key: Tensor, value: Tensor, scaling: float | None, dropout: float) -> Tensor:
    """Each key head is a batch of its own with the query heads that share it. A CPU reads the same key for all of them;
    on CUDA it is copied, since torch's memory-efficient kernel misreads repeated keys if their number is one more than
    a multiple of 32 (PyTorch issue 191937).
    """
    batches, tokens = key.shape[1], query.shape[2]
    shared = query.shape[1] // batches
    key, value = (part.transpose(0, 1).expand(batches, shared, *part.shape[2:]) for part in (key, value))
    if key.is_cuda:
        key, value = key.contiguous(), value.contiguous()
    mask = causal_lower_right(tokens, key.shape[2]) if call.mask is None else call.mask
    output = F.scaled_dot_product_attention(
        query.reshape(batches, shared, tokens, query.shape[3]),
        key,
        value,
        attn_mask=mask,
        dropout_p=dropout,
        scale=scaling,
    )
    return output.reshape(1, batches * shared, tokens, value.shape[3])


def _merge_blocks(runs: Sequence[Run], grain: Grain) -> list[list[_Block]]:
    """Blocks that are attended in one call: neighbors, while the mask keeps its size and is not mostly empty."""
    groups: list[list[_Block]] = []
    needed = 0
    for block in _blocks(runs, grain):
        own = (block.end - block.begin) * block.visible
        if groups and not _causal(block, grain) and not _causal(groups[-1][0], grain):
            joined = [*groups[-1], block]
            area = (block.end - joined[0].begin) * sum(end - begin for _, begin, end in _union(joined))
            if area <= grain.largest and area <= WASTE * (needed + own) + grain.slack:
                groups[-1] = joined
                needed += own
                continue
        groups.append([block])
        needed = own
    return groups


def _blocks(runs: Sequence[Run], grain: Grain) -> Iterator[_Block]:
    for run in runs:
        step = grain.step if run.visible and run.tokens <= grain.aligned else run.tokens
        for begin in range(run.begin, run.end, step):
            yield _Block(run, begin, min(begin + step, run.end))


def _causal(block: _Block, grain: Grain) -> bool:
    """True if it is one causal call: a trunk that is worth one, or a long branch."""
    worth = block.run.tokens**2 > grain.slack
    return worth if not block.run.visible else block.run.tokens > grain.aligned


def _union(blocks: Sequence[_Block]) -> list[tuple[int, int, int]]:
    """Everything visible to some block, in slices without overlap."""
    merged: list[tuple[int, int, int]] = []
    for name, begin, end in sorted({part for block in blocks for part in block.sees()}):
        if merged and merged[-1][0] == name and begin <= merged[-1][2]:
            merged[-1] = name, merged[-1][1], max(end, merged[-1][2])
        else:
            merged.append((name, begin, end))
    return merged


def _call(blocks: Sequence[_Block], like: Tensor, grain: Grain) -> _Call:
    """The call for `blocks`, its mask on the device and of the type of `like`."""
    begin, end = blocks[0].begin, blocks[-1].end
    if _causal(blocks[0], grain):
        return _Call(begin, end, tuple(blocks[0].sees()) if blocks[0].run.visible else ())
    slices = _union(blocks)
    hidden = torch.ones(end - begin, sum(last - first for _, first, last in slices), dtype=torch.bool)
    for block in blocks:
        lines = hidden[block.begin - begin : block.end - begin]
        for name, first, last in block.sees():
            lines[:, _columns(slices, name, first, last)] = False
        tokens = block.end - block.begin
        lines[:, _columns(slices, OWN, block.begin, block.end)] = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
    mask = torch.zeros(hidden.shape, dtype=like.dtype, device=like.device)
    return _Call(begin, end, slices, mask.masked_fill_(hidden.to(like.device), -math.inf))


def _columns(slices: Sequence[tuple[int, int, int]], name: int, first: int, last: int) -> slice:
    """Columns of tokens `first` to `last` of sequence `name` among the keys of `slices`."""
    at = 0
    for one, start, stop in slices:
        if one == name and start <= first and last <= stop:
            return slice(at + first - start, at + last - start)
        at += stop - start
    raise AssertionError(f"tokens {first} to {last} of sequence {name} are in no slice")


def _attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    prefix_attention: PrefixAttention | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attention function of Transformers; the model passes `prefix_attention` on from its own call."""
    unknown = [name for name in _UNKNOWN if others.get(name) is not None]
    if prefix_attention is None or attention_mask is not None or unknown:
        raise TrainerError(
            f"{type(module).__name__} asks of attention what shared prefixes do not have"
            f"{': ' + ', '.join(unknown) if unknown else ''}"
        )
    output = prefix_attention(module, query, key, value, scaling=scaling, dropout=dropout)
    return output.transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, _attention)
