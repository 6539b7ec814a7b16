"""Keys and values of prompts that were seen, per version, so that a shared beginning is computed once.

A radix tree: each edge holds token ids with their keys and values, so shared prefixes are stored once. Rows copy them
(milliseconds for 10 k tokens, against seconds to compute). The least recently used leaves go first.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import numpy as np
import torch

from openclaw_rl.trainer_local.embedded.kv_pool import CachedRow

Ids = np.ndarray[tuple[int], np.dtype[np.int64]]
_clock = count(1)


class _Node:
    __slots__ = ("children", "ids", "keys", "parent", "used", "values")

    def __init__(self, ids: Ids, keys: list[torch.Tensor], values: list[torch.Tensor], parent: _Node | None) -> None:
        self.ids = ids
        self.keys = keys
        self.values = values
        self.parent = parent
        self.children: dict[int, _Node] = {}
        self.used = next(_clock)

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in (*self.keys, *self.values))


def common(first: Ids, second: Ids) -> int:
    """Length of the common beginning."""
    length = min(len(first), len(second))
    different = np.flatnonzero(first[:length] != second[:length])
    return int(different[0]) if len(different) else length


class VersionPrefixes:
    """The prefixes of one version of the weights."""

    def __init__(self) -> None:
        self.root = _Node(np.empty(0, np.int64), [], [], None)
        self.nbytes = 0
        self.changes = 0

    def match(self, ids: Ids) -> int:
        """Number of leading ids that are cached."""
        return sum(length for _, length in self._walk(ids))

    def fill(self, row: CachedRow, ids: Ids) -> int:
        """Copy the cached leading ids into an empty row; returns their number."""
        for node, length in self._walk(ids):
            node.used = next(_clock)
            row.preload([key[:, :length] for key in node.keys], [value[:, :length] for value in node.values])
        return row.length

    def insert(self, ids: Ids, row: CachedRow) -> None:
        """Remember the row's keys and values of `ids` (its first positions)."""
        node, at = self.root, 0
        for child, length in list(self._walk(ids)):
            at += length
            child.used = next(_clock)
            node = self._split(child, length) if length < len(child.ids) else child
        if at < len(ids):
            keys, values = row.slices(at, len(ids))
            fresh = _Node(ids[at:].copy(), keys, values, node)
            node.children[int(ids[at])] = fresh
            self.nbytes += fresh.nbytes
            self.changes += 1

    def recent(self, least: int, most: int) -> list[list[int]]:
        """The prompts used last, of at least `least` ids each and at most `most` together."""
        chosen: list[list[int]] = []
        seen: set[_Node] = set()
        for leaf in sorted(self.leaves(), key=lambda leaf: leaf.used, reverse=True):
            path = [leaf]
            while path[-1].parent is not None:
                path.append(path[-1].parent)
            most -= sum(len(node.ids) for node in path if node not in seen)
            if most < 0:
                break
            seen.update(path)
            ids = [int(token) for node in reversed(path) for token in node.ids]
            if len(ids) >= least:
                chosen.append(ids)
        return chosen

    def leaves(self) -> Iterator[_Node]:
        """Nodes without children."""
        stack = list(self.root.children.values())
        while stack:
            node = stack.pop()
            if node.children:
                stack.extend(node.children.values())
            else:
                yield node

    def remove(self, leaf: _Node) -> None:
        """Forget a leaf."""
        assert leaf.parent is not None
        del leaf.parent.children[int(leaf.ids[0])]
        self.nbytes -= leaf.nbytes
        self.changes += 1

    def _walk(self, ids: Ids) -> Iterator[tuple[_Node, int]]:
        node, at = self.root, 0
        while at < len(ids) and (child := node.children.get(int(ids[at]))) is not None:
            length = common(child.ids, ids[at:])
            yield child, length
            if length < len(child.ids):
                return
            node, at = child, at + length

    def _split(self, node: _Node, length: int) -> _Node:
        """Cut an edge in two; returns the upper half. Both halves are copies: a view would keep the whole alive."""
        assert node.parent is not None
        upper = _Node(
            node.ids[:length].copy(),
            [key[:, :length].clone() for key in node.keys],
            [value[:, :length].clone() for value in node.values],
            node.parent,
        )
        node.parent.children[int(upper.ids[0])] = upper
        node.ids = node.ids[length:].copy()
        node.keys = [key[:, length:].clone() for key in node.keys]
        node.values = [value[:, length:].clone() for value in node.values]
        node.parent = upper
        upper.children[int(node.ids[0])] = node
        return upper


def trim(trees: list[VersionPrefixes], limit: int) -> None:
    """Forget the least recently used leaves until the trees fit `limit` bytes together."""
    while sum(tree.nbytes for tree in trees) > limit:
        tree, leaf = min(((tree, leaf) for tree in trees for leaf in tree.leaves()), key=lambda found: found[1].used)
        tree.remove(leaf)
