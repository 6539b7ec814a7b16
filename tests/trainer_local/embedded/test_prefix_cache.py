from __future__ import annotations

import random

import numpy as np
import torch

from openclaw_rl.trainer_local.embedded.kv_pool import CachedRow, Pools
from openclaw_rl.trainer_local.embedded.prefix_cache import Ids, VersionPrefixes, trim


def row_of(ids: Ids) -> CachedRow:
    """A row of two layers whose keys at each position are a running sum of the ids, so that a wrong prefix shows."""
    row = CachedRow(Pools())
    sums = torch.from_numpy(np.cumsum(ids)).float()
    keys = [sums[None, :, None].expand(2, -1, 3) * factor for factor in (1, 2)]
    row.preload(keys, [key + 0.5 for key in keys])
    return row


def ids(*values: int) -> Ids:
    return np.asarray(values, dtype=np.int64)


def filled(tree: VersionPrefixes, wanted: Ids) -> int:
    """Count the tokens of `wanted` that the tree gives back, and check them."""
    row = CachedRow(Pools())
    count = tree.fill(row, wanted)
    if count:
        right = row_of(wanted[:count])
        for layer in (0, 1):
            for found, wanted_of in zip(row.slices(0, count), right.slices(0, count), strict=True):
                assert torch.equal(found[layer], wanted_of[layer])
    return count


def insert(tree: VersionPrefixes, new: Ids) -> None:
    tree.insert(new, row_of(new))


def test_an_empty_tree_gives_nothing() -> None:
    assert filled(VersionPrefixes(), ids(1, 2)) == 0


def test_the_longest_common_beginning_is_given_back() -> None:
    tree = VersionPrefixes()
    insert(tree, ids(1, 2, 3, 4))
    assert filled(tree, ids(1, 2, 3, 4, 5)) == 4
    assert filled(tree, ids(1, 2, 9)) == 2
    assert filled(tree, ids(2, 1)) == 0
    insert(tree, ids(1, 2, 7, 8))
    assert filled(tree, ids(1, 2, 7, 8, 9)) == 4
    assert filled(tree, ids(1, 2, 3, 4)) == 4


def test_shared_beginnings_are_stored_once() -> None:
    tree = VersionPrefixes()
    insert(tree, ids(*range(100)))
    once = tree.nbytes
    insert(tree, ids(*range(100)))
    assert tree.nbytes == once
    insert(tree, ids(*range(90), 500, 501))
    assert tree.nbytes == once + once * 2 // 100


def test_random_prompts_never_get_anothers_keys() -> None:
    draw = random.Random(3)
    tree, prompts = VersionPrefixes(), []
    for _ in range(200):
        new = ids(*(draw.randrange(3) for _ in range(draw.randrange(1, 12))))
        best = max((len(_common(new, old)) for old in prompts), default=0)
        assert filled(tree, new) == best
        insert(tree, new)
        prompts.append(new)


def _common(first: Ids, second: Ids) -> list[int]:
    length = 0
    while length < min(len(first), len(second)) and first[length] == second[length]:
        length += 1
    return [*first[:length]]


def test_the_least_recently_used_prompts_make_room() -> None:
    old, new = VersionPrefixes(), VersionPrefixes()
    for start in range(10):
        insert(old, ids(start, *range(100, 150)))
    filled(old, ids(0, *range(100, 150)))
    insert(new, ids(1, *range(100, 150)))
    limit = old.nbytes // 2
    trim([old, new], limit)
    assert old.nbytes + new.nbytes <= limit
    assert filled(new, ids(1, *range(100, 150))) == 51
    assert filled(old, ids(0, *range(100, 150))) == 51
    assert filled(old, ids(1, *range(100, 150))) == 0


def test_no_room_at_all_keeps_nothing() -> None:
    tree = VersionPrefixes()
    insert(tree, ids(1, 2, 3))
    insert(tree, ids(1, 2, 4))
    trim([tree], 0)
    assert tree.nbytes == 0 and filled(tree, ids(1, 2, 3)) == 0


def test_recent_prompts_are_the_long_ones_used_last_within_the_budget() -> None:
    tree = VersionPrefixes()
    head = [*range(50)]
    for last in range(60, 64):
        insert(tree, ids(*head, *[last] * 10))
    insert(tree, ids(99, 98))
    filled(tree, ids(*head, *[61] * 10))
    # The head counts once: 50 + 10 for the newest, 10 for each of the others, and 2 for the one that is too short.
    assert tree.recent(least=20, most=50 + 10 + 10 + 2) == [[*head, *[61] * 10], [*head, *[63] * 10]]
    assert tree.recent(least=20, most=5) == []
