"""The mask of a packed sequence's branches for FlexAttention (Dong et al., arXiv 2412.05496), which reads the keys and
values that branches share where they are.

The keys are cut into segments wherever something that a run sees begins or ends, so a run sees a segment in full or not
at all; its own tokens are causal besides. Blocks of the mask are counted by segments: it is never made for all pairs of
tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

from openclaw_rl.trainer_local.prefix.tree import Run

BLOCK = 128
"""Tokens of a block, of queries and of keys: the kernels' own default."""


def first_branch(runs: Sequence[Run]) -> int:
    """The first token of the branches, which end the sequence: of the first run that sees something before itself. The
    number of tokens if none does.
    """
    return next((run.begin for run in runs if run.visible), max((run.end for run in runs), default=0))


def branch_mask(runs: Sequence[Run], past: Mapping[int, int], device: torch.device) -> BlockMask:
    """The mask of the sequence of `runs`. Queries are its tokens from `first_branch` on. Keys are those of the earlier
    sequences in `past`, which has their numbers of tokens, then all of its own.
    """
    starts, total = {}, 0
    for number, tokens in past.items():
        starts[number] = total
        total += tokens
    begin, keys = first_branch(runs), total + runs[-1].end
    branches = [run for run in runs if run.begin >= begin]
    visible = [
        [
            *((starts[part.sequence] + part.begin, starts[part.sequence] + part.end) for part in run.past),
            *((total + first, total + last) for first, last in [*run.before, (run.begin, run.end)]),
        ]
        for run in branches
    ]
    edges = sorted({0, keys, *(edge for slices in visible for pair in slices for edge in pair)})
    number_of = {edge: index for index, edge in enumerate(edges)}
    sees = torch.zeros(len(branches), len(edges) - 1, dtype=torch.bool)
    for index, slices in enumerate(visible):
        for first, last in slices:
            sees[index, number_of[first] : number_of[last]] = True
    run_of = torch.arange(len(branches)).repeat_interleave(torch.tensor([run.tokens for run in branches]))
    segment_of = torch.arange(len(edges) - 1).repeat_interleave(torch.tensor(edges).diff())
    partial, full = _blocks(run_of, segment_of, sees)
    return _as_block_mask(partial, full, run_of, segment_of, sees, device)


def _blocks(run_of: Tensor, segment_of: Tensor, sees: Tensor) -> tuple[Tensor, Tensor]:
    """Booleans `[blocks of queries, blocks of keys]`: where some pairs may be visible, and where all are."""
    queries, keys = len(run_of), len(segment_of)
    pairs = _tokens(run_of, sees.shape[0]) @ sees.float() @ _tokens(segment_of, sees.shape[1]).T
    # The queries are the last of the keys: query i is key keys - queries + i.
    first_query = keys - queries + torch.arange(0, queries, BLOCK)
    last_query = (first_query + BLOCK - 1).clamp(max=keys - 1)
    first_key = torch.arange(0, keys, BLOCK)
    earlier = first_key + BLOCK - 1 <= first_query[:, None]
    full = earlier & (pairs == BLOCK * BLOCK)
    return (pairs > 0) & (first_key <= last_query[:, None]) & ~full, full


def _tokens(kinds: Tensor, count: int) -> Tensor:
    """The number of tokens of each of `count` kinds in each block: `[blocks, count]`."""
    places = torch.arange(len(kinds)) // BLOCK * count + kinds
    return torch.bincount(places, minlength=-(-len(kinds) // BLOCK) * count).view(-1, count).float()


def _as_block_mask(
    partial: Tensor, full: Tensor, run_of: Tensor, segment_of: Tensor, sees: Tensor, device: torch.device
) -> BlockMask:
    queries, keys = len(run_of), len(segment_of)
    key_of = torch.arange(keys - queries, keys, dtype=torch.int32, device=device)
    # A flat table: kernels would be compiled again for one of a single row, or of as many as there are heads.
    table, row_of, column_of = (
        part.to(device) for part in (sees.flatten().clone(), run_of * sees.shape[1], segment_of)
    )

    def visible(_: Tensor, __: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (key <= key_of[query]) & table[row_of[query] + column_of[key]]

    def ordered(blocks: Tensor) -> tuple[Tensor, Tensor]:
        """The number of blocks of keys of a block of queries, and the indices with those first: `[1, 1, …]`."""
        indices = blocks.int().argsort(dim=-1, descending=True, stable=True)
        return blocks.sum(-1).int()[None, None].to(device), indices.int()[None, None].to(device)

    return BlockMask.from_kv_blocks(
        *ordered(partial), *ordered(full), BLOCK_SIZE=BLOCK, mask_mod=visible, seq_lengths=(queries, keys)
    )
