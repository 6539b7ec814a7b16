"""Hidden states of answers, from any Hugging Face causal language model, with or without gradients. Logits are made of
them slice by slice (`training.slices`, `models.head`).

Shared prefixes are computed once (`prefix.tree`), as far as the model can (`Sharing`). A sequence that others need
keeps its graph; they use its keys and values as leaves, whose summed gradients go back through it once. So gradients
are exact, and activations are held of one path of the tree at a time. Shared tokens share their dropout.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from openclaw_rl.trainer_local.models.head import hidden_states, output_head
from openclaw_rl.trainer_local.prefix.attention import Layer, PrefixAttention, attending_by_row
from openclaw_rl.trainer_local.prefix.capability import Sharing
from openclaw_rl.trainer_local.prefix.tree import Packed, passes, prefix_tree
from openclaw_rl.trainer_local.training.attention_kernels import attention_kernels
from openclaw_rl.trainer_local.training.batching import PASS_TOKENS, Row, chunks
from openclaw_rl.trainer_local.training.memory_limit import naming_pass
from openclaw_rl.trainer_local.training.slices import AnswerStates, UseAnswers

SHORTEST_SHARED_PREFIX = 64
"""Tokens. Sharing fewer saves next to nothing."""

LEAST_SHARE = 0.2
"""Minimum share of a row. Attention to a prefix is computed again in the backward pass: long rows that share little
are faster alone. An estimate: no committed program measures it.
"""

MOST_PADDING = 0.1
"""Maximum padding of sequences side by side, relative to their tokens, where they can be packed one after another: the
many small attentions of packed ones take time too. An estimate: no committed program measures it.
"""


def run_rows(
    model: Any,
    rows: Sequence[Row],
    use: UseAnswers,
    *,
    micro_batch_tokens: int,
    share: Sharing,
    backward: bool,
) -> None:
    """Put all `rows` through `model` in micro batches and call `use` on their answers. With `backward` the gradients
    that it gives to their hidden states go back through the model and add up in the parameters.
    """
    alone, tree = _plan(rows, micro_batch_tokens, share)
    budget = micro_batch_tokens if share > Sharing.ALONE else 1
    # Where nothing can be packed, more passes have less padding.
    most_padding = sys.maxsize if share == Sharing.TREES else PASS_TOKENS
    with torch.set_grad_enabled(backward), attention_kernels(next(model.parameters()).device):
        for chunk in chunks([packed.tokens for packed in alone], budget, most_padding):
            sequences = [alone[index] for index in chunk]
            longest = max(packed.tokens for packed in sequences)
            mine = [rows[row] for packed in sequences for row in packed.answers]
            with naming_pass(mine, longest * len(sequences), divisible=len(sequences) > 1):
                _side_by_side(model, sequences, use)
        if tree:
            with attending_by_row(model):
                _run_tree(model, rows, tree, use)


def _plan(rows: Sequence[Row], budget: int, share: Sharing) -> tuple[list[Packed], list[Packed]]:
    """Sequences of one run each to put side by side, padded, and packed sequences in their order, without padding."""
    if share < Sharing.CHAINS:
        singles = [prefix_tree(rows, among=[index]) for index, line in enumerate(rows) if line.response_length]
        return [passes(single, budget)[0] for single in singles], []
    shortest = SHORTEST_SHARED_PREFIX if share == Sharing.TREES else sys.maxsize
    tree = prefix_tree(rows, shortest_prefix=shortest, least_share=LEAST_SHARE)
    forked = [root for root in tree.roots if tree.children[root]]
    alone = [passes(tree, budget, [root])[0] for root in tree.roots if not tree.children[root]]
    if share == Sharing.TREES and _padding([packed.tokens for packed in alone], budget) > MOST_PADDING:
        return [], passes(tree, budget)
    return alone, passes(tree, budget, forked)


def _padding(lengths: Sequence[int], budget: int) -> float:
    """The tokens that padding adds side by side, relative to their own."""
    padded = sum(len(chunk) * lengths[chunk[-1]] for chunk in chunks(lengths, budget))
    return padded / sum(lengths) - 1 if lengths else 0.0


@dataclass(frozen=True)
class Computed:
    """A forward pass, to be differentiated after all that builds on it: its ends, and the leaves that replace them.
    `layers` are the leaves of its keys and values.
    """

    ends: Sequence[Tensor]
    leaves: Sequence[Tensor]
    layers: Mapping[int, Layer] = field(default_factory=dict)
    number: int = -1

    def differentiate(self) -> None:
        """Send the gradients of the leaves back."""
        pairs = [(end, leaf.grad) for end, leaf in zip(self.ends, self.leaves, strict=True) if leaf.grad is not None]
        if pairs:
            torch.autograd.backward([end for end, _ in pairs], [gradient for _, gradient in pairs])


def padded(sequences: Sequence[Sequence[int]]) -> Tensor:
    """Ids `[B, L]`, padded on the right, where causal attention needs no mask."""
    ids = [torch.tensor(sequence, dtype=torch.long) for sequence in sequences]
    return torch.nn.utils.rnn.pad_sequence(ids, batch_first=True)


def _side_by_side(model: Any, sequences: Sequence[Packed], use: UseAnswers) -> None:
    ids = padded([packed.ids for packed in sequences])
    positions = torch.arange(ids.shape[1]).expand(len(sequences), -1)
    answers = [(row, index, drawn) for index, packed in enumerate(sequences) for row, drawn in packed.answers.items()]
    forward_answers(model, ids, positions, answers, use).differentiate()


def _run_tree(model: Any, rows: Sequence[Row], plan: Sequence[Packed], use: UseAnswers) -> None:
    needed = {packed.parent for packed in plan}
    waiting: list[Computed] = []

    def naming(number: int) -> AbstractContextManager[None]:
        packed = plan[number]
        return naming_pass([rows[row] for row in packed.answers], packed.tokens, divisible=len(packed.runs) > 1)

    def differentiate() -> None:
        computed = waiting.pop()
        with naming(computed.number):
            computed.differentiate()

    for number, packed in enumerate(plan):
        while waiting and waiting[-1].number != packed.parent:
            differentiate()
        with naming(number):
            past = {one.number: one.layers for one in waiting}
            waiting.append(_compute(model, packed, number, past, use, keep=number in needed))
    while waiting:
        differentiate()


def _compute(
    model: Any, packed: Packed, number: int, past: Mapping[int, Mapping[int, Layer]], use: UseAnswers, *, keep: bool
) -> Computed:
    """One sequence of a tree; with `keep` others need its keys and values."""
    attention = PrefixAttention(packed, past, keep=keep)
    ids, positions = torch.tensor([packed.ids]), torch.tensor([packed.positions])
    answers = [(row, 0, drawn) for row, drawn in packed.answers.items()]
    computed = forward_answers(model, ids, positions, answers, use, prefix_attention=attention)
    layers = attention.take_kept()
    leaves = {layer: (_leaf(keys), _leaf(values)) for layer, (keys, values) in layers.items()}
    return Computed(
        [*computed.ends, *(part for pair in layers.values() for part in pair)],
        [*computed.leaves, *(part for pair in leaves.values() for part in pair)],
        leaves,
        number,
    )


def forward_answers(
    model: Any,
    ids: Tensor,
    positions: Tensor | None,
    answers: Sequence[tuple[int, int, Sequence[int]]],
    use: UseAnswers,
    **arguments: Any,
) -> Computed:
    """One pass of the model over `ids` `[B, L]`. `answers`: a row, its line in `ids`, and the positions that its answer
    is drawn from. Without `positions` the model computes its own.
    """
    head: Any = output_head(model)
    device = next(model.parameters()).device
    lines = torch.tensor([line for _, line, drawn in answers for _ in drawn], dtype=torch.long, device=device)
    columns = torch.tensor([column for _, _, drawn in answers for column in drawn], dtype=torch.long, device=device)
    if positions is not None:
        arguments["position_ids"] = positions.to(device)
    states, logits = hidden_states(model, lines, columns, input_ids=ids.to(device), use_cache=False, **arguments)
    leaf = _leaf(states)
    lengths = [len(drawn) for _, _, drawn in answers]
    use(AnswerStates([row for row, _, _ in answers], lengths, leaf, logits, int(head.weight.shape[0])))
    return Computed([states], [leaf])


def _leaf(part: Tensor) -> Tensor:
    return part.detach().requires_grad_(part.requires_grad)
