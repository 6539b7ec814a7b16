"""The mask of branches shows what each run's slices show, and its blocks are those of the mask of all pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, create_mask

from openclaw_rl.trainer_local.prefix.branch_mask import BLOCK, branch_mask, first_branch
from openclaw_rl.trainer_local.prefix.tree import Packed, pack, passes, prefix_tree
from openclaw_rl.trainer_local.training.batching import Row, row
from tests.trainer_local.row_by_row import SHAPES, drawn_rows

CPU = torch.device("cpu")


def past_of(packed: Packed, plan: Sequence[Packed]) -> dict[int, int]:
    """The earlier sequences that it sees, with their tokens."""
    numbers = sorted({part.sequence for run in packed.runs for part in run.past})
    return {number: plan[number].tokens for number in numbers}


def by_slices(packed: Packed, past: Mapping[int, int]) -> Tensor:
    """The keys that each token of the branches sees, from the slices of its run: `[queries, keys]`."""
    total = sum(past.values())
    places = dict(zip(past, torch.tensor([0, *past.values()]).cumsum(0).tolist(), strict=False))
    seen = torch.zeros(packed.tokens, total + packed.tokens, dtype=torch.bool)
    for run in packed.runs:
        for part in run.past:
            seen[run.begin : run.end, places[part.sequence] + part.begin : places[part.sequence] + part.end] = True
        for begin, end in run.before:
            seen[run.begin : run.end, total + begin : total + end] = True
        seen[run.begin : run.end, total + run.begin : total + run.end].fill_(True).tril_()
    return seen[first_branch(packed.runs) :]


def check(packed: Packed, past: Mapping[int, int]) -> None:
    wanted = by_slices(packed, past)
    queries, keys = wanted.shape
    found = branch_mask(packed.runs, past, CPU)
    assert found.shape == (1, 1, queries, keys)
    assert torch.equal(create_mask(found.mask_mod, 1, 1, queries, keys, "cpu")[0, 0], wanted)
    theirs = create_block_mask(found.mask_mod, 1, 1, queries, keys, device="cpu", BLOCK_SIZE=BLOCK)
    needed = theirs.to_dense()[0, 0].bool()
    assert bool((found.to_dense()[0, 0].bool() | ~needed).all()), "no block with a visible pair is left out"
    size = found.kv_num_blocks.sum() + found.full_kv_num_blocks.sum()
    assert int(size) <= int(needed.sum()) + 2 * -(-queries // BLOCK), "hardly one more"
    assert torch.equal(found.full_kv_num_blocks, theirs.full_kv_num_blocks), "blocks that need no mask"
    for place, count in enumerate(found.full_kv_num_blocks[0, 0].tolist()):
        for block in found.full_kv_indices[0, 0, place, :count].tolist():
            assert bool(wanted[place * BLOCK :, block * BLOCK :][:BLOCK, :BLOCK].all())


@settings(max_examples=12, deadline=None)
@given(drawn_rows())
def test_small_trees_in_one_sequence_and_in_several(rows: list[Row]) -> None:
    for plan in (pack(rows, 1000), passes(prefix_tree(rows), 1000), passes(prefix_tree(rows), 6)):
        for packed in plan:
            if first_branch(packed.runs) < packed.tokens:
                check(packed, past_of(packed, plan))


@pytest.mark.parametrize("seed", range(3))
def test_trees_of_many_blocks(seed: int) -> None:
    draw = Random(seed)
    trunk = [draw.randrange(9) for _ in range(900)]
    rows = [
        row([*trunk[: draw.randrange(1, 900)], *(draw.randrange(9) for _ in range(draw.randrange(1, 300)))], [1, 2])
        for _ in range(9)
    ]
    for budget in (10_000, 700):
        plan = passes(prefix_tree([*rows, row(trunk, [3])]), budget)
        branched = [packed for packed in plan if first_branch(packed.runs) < packed.tokens]
        assert branched
        for packed in branched:
            check(packed, past_of(packed, plan))


@pytest.mark.parametrize("rows", [SHAPES["chain"], [row([1, 2, 3], [4]), row([5, 6], [7])]], ids=["chain", "apart"])
def test_rows_that_share_no_prefix_with_a_branch_have_none(rows: list[Row]) -> None:
    (packed,) = pack(rows, 1000)
    assert first_branch(packed.runs) == packed.tokens
