"""The prefix tree of a batch: plans in which prefixes that rows share are computed once. Any trainer can run them.

A row's *inputs* are all its tokens but the last; token `ids[i]` of its answer is drawn from input `i - 1`. The inputs
of all rows form a trie, cut into `Branch`es: the longest row is one, and each further row adds its new tokens. An
agent's conversation is a trunk (its last turn) with a short branch a turn; a plain chat is one branch.

Two plans, both lists of `Packed` sequences in which each row with an answer appears once:

- `pack(rows, budget)`: each sequence is complete and has at most `budget` tokens (a longer row goes alone). A larger
  tree is cut between rows; the parts compute their common prefix again.
- `passes(tree, budget)`: nothing is computed again. A larger tree puts its trunk into one sequence, and the sequences
  after it attend to the trunk's keys and values (`Run.past`).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from openclaw_rl.trainer_local.training.batching import Row

WIDTH = 8
"""Bytes of a token in a row's key."""


@dataclass(frozen=True)
class Branch:
    """Positions `start` to `end` of the inputs of row `row`; the tokens before `start` are those of the branch `parent`
    and its parents. `rows` are the rows whose last input is on this branch.
    """

    row: int
    start: int
    end: int
    parent: int | None
    rows: tuple[int, ...]

    @property
    def tokens(self) -> int:
        """Number of tokens of this branch."""
        return self.end - self.start


@dataclass(frozen=True)
class PrefixTree:
    """`branches` with parents before children; there can be several without a parent."""

    lines: Sequence[Row]
    branches: Sequence[Branch]

    @cached_property
    def children(self) -> Sequence[Sequence[int]]:
        """The branches that leave each branch."""
        found: list[list[int]] = [[] for _ in self.branches]
        for index, branch in enumerate(self.branches):
            if branch.parent is not None:
                found[branch.parent].append(index)
        return found

    @cached_property
    def roots(self) -> Sequence[int]:
        """The branches without a parent."""
        return [index for index, branch in enumerate(self.branches) if branch.parent is None]

    @property
    def tokens(self) -> int:
        """Tokens that are computed if none is computed twice."""
        return sum(branch.tokens for branch in self.branches)

    def below(self, branch: int) -> list[int]:
        """`branch` and all that leave it, theirs included; parents before children."""
        found = [branch]
        for index in found:
            found.extend(self.children[index])
        return found


@dataclass(frozen=True)
class PastSlice:
    """Tokens `begin` to `end` of packed sequence `sequence` (its index in the plan)."""

    sequence: int
    begin: int
    end: int


@dataclass(frozen=True)
class Run:
    """Tokens `begin` to `end` of a packed sequence, at consecutive positions of their row from `position`. Each attends
    to all of `past`, then all of `before` (slices of the same sequence), then this run up to itself.
    """

    begin: int
    end: int
    position: int
    past: tuple[PastSlice, ...] = ()
    before: tuple[tuple[int, int], ...] = ()

    @property
    def tokens(self) -> int:
        """Its length."""
        return self.end - self.begin

    @property
    def visible(self) -> int:
        """Tokens that all of the run sees: those before it in its row."""
        return sum(part.end - part.begin for part in self.past) + sum(end - begin for begin, end in self.before)


@dataclass(frozen=True)
class Packed:
    """Tokens that go through the model together: `ids` and `positions`, both of length N.

    `answers[row]` are the indices, below N, of the inputs that the answer of `row` is drawn from, in order. `parent` is
    the sequence whose keys and values (and those of its parents) the runs' `past` needs.
    """

    ids: tuple[int, ...]
    positions: tuple[int, ...]
    runs: tuple[Run, ...]
    answers: Mapping[int, tuple[int, ...]]
    parent: int | None = None

    @property
    def tokens(self) -> int:
        """N."""
        return len(self.ids)


def prefix_tree(
    rows: Sequence[Row], *, shortest_prefix: int = 1, least_share: float = 0.0, among: Iterable[int] | None = None
) -> PrefixTree:
    """The tree of the rows (of those in `among`, if given) that have an answer.

    Rows share a prefix of at least `shortest_prefix` tokens and `least_share` of the row. A row that is a prefix of
    another is on that row's branch at any length.
    """
    chosen = [index for index in (range(len(rows)) if among is None else among) if rows[index].response_length > 0]
    keys = {index: _key(rows[index]) for index in chosen}
    placed: list[tuple[bytes, int]] = []
    made: list[tuple[int, int, int, int | None]] = []
    ends: list[list[int]] = []
    on: dict[int, int] = {}
    for index in sorted(chosen, key=lambda one: (-len(keys[one]), keys[one], one)):
        key, length = keys[index], len(keys[index]) // WIDTH
        at = bisect_left(placed, (key, index))
        shared, nearest = max(
            ((_shared(key, other), neighbor) for other, neighbor in placed[max(0, at - 1) : at + 1]), default=(0, index)
        )
        branch: int | None = on.get(nearest)
        if shared < length and shared < max(shortest_prefix, least_share * length):
            shared, branch = 0, None
        while branch is not None and made[branch][1] >= shared:
            branch = made[branch][3]
        if branch is None or shared < length:
            made.append((index, shared, length, branch))
            ends.append([])
            branch = len(made) - 1
        on[index] = branch
        ends[branch].append(index)
        placed.insert(at, (key, index))
    branches = [Branch(*branch, tuple(sorted(rows_))) for branch, rows_ in zip(made, ends, strict=True)]
    return PrefixTree(rows, branches)


def apart(rows: Sequence[Row]) -> PrefixTree:
    """A tree in which the rows that have an answer share nothing, whatever they begin with."""
    lines = [(index, line) for index, line in enumerate(rows) if line.response_length > 0]
    return PrefixTree(rows, [Branch(index, 0, line.length - 1, None, (index,)) for index, line in lines])


def pack(rows: Sequence[Row], budget: int) -> list[Packed]:
    """All rows in complete sequences of at most `budget` tokens; a longer row goes alone, with its prefixes."""
    tree = prefix_tree(rows)
    groups: list[tuple[int, list[int]]] = []
    for root in tree.roots:
        groups.extend(_cut(tree, root, budget))
    plan: list[Packed] = []
    for bin_ in _bins([tokens for tokens, _ in groups], budget):
        among = [index for group in bin_ for index in groups[group][1]]
        part = prefix_tree(rows, among=among)
        plan.append(_Layout(part).add([(index, branch.start) for index, branch in enumerate(part.branches)]))
    return plan


def passes(tree: PrefixTree, budget: int, roots: Sequence[int] | None = None) -> list[Packed]:
    """The tree (of `roots` alone, if given) in sequences that attend to earlier ones. Only a part of an answer that two
    rows share can be computed twice, since an answer is drawn from one sequence.

    Sequences follow their parent depth first, so keys and values are freed in that order. Except for trunks of large
    trees, a sequence has at most `budget` tokens, unless one row's own part is longer.
    """
    layout = _Layout(tree)
    totals = {index: branch.tokens for index, branch in enumerate(tree.branches)}
    # An answer is drawn from one sequence: a branch put into another than its parent's begins where its answers do.
    lowest = {
        index: min((tree.lines[row].start - 1 for row in branch.rows), default=branch.end)
        for index, branch in enumerate(tree.branches)
    }
    for index in range(len(tree.branches) - 1, -1, -1):
        above = tree.branches[index].parent
        if above is not None:
            totals[above] += totals[index]
            lowest[above] = min(lowest[above], lowest[index])
    plan: list[Packed] = []
    waiting: list[tuple[Sequence[int], int | None]] = [(tree.roots if roots is None else roots, None)]
    while waiting:
        hanging, parent = waiting.pop()
        starts = {index: min(tree.branches[index].start, lowest[index]) for index in hanging}
        sizes = {index: totals[index] + tree.branches[index].start - starts[index] for index in hanging}
        large = [index for index in hanging if sizes[index] > budget and tree.children[index]]
        small = [index for index in hanging if index not in set(large)]
        for bin_ in _bins([sizes[index] for index in small], budget):
            parts = [
                (index, starts.get(index, tree.branches[index].start))
                for position in bin_
                for index in tree.below(small[position])
            ]
            plan.append(layout.add(parts, parent))
        if large:
            # One at a time: the rest waits until all that hangs from it is planned.
            waiting.append((large[1:], parent))
            plan.append(layout.add([(large[0], starts[large[0]])], parent))
            waiting.append((tree.children[large[0]], len(plan) - 1))
    return plan


def _key(row: Row) -> bytes:
    """The bytes that must be equal for inputs to be shared, `WIDTH` for each: the token."""
    return array("q", row.ids[:-1]).tobytes()


def _shared(first: bytes, second: bytes) -> int:
    """Number of equal leading tokens."""
    low, high = 0, min(len(first), len(second)) // WIDTH
    while low < high:
        middle = (low + high + 1) // 2
        if first[low * WIDTH : middle * WIDTH] == second[low * WIDTH : middle * WIDTH]:
            low = middle
        else:
            high = middle - 1
    return low


def _bins(sizes: Sequence[int], budget: int) -> list[list[int]]:
    """Indices of `sizes` in bins of at most `budget`, first fit, largest first; one alone may exceed it."""
    bins: list[list[int]] = []
    room: list[int] = []
    for index in sorted(range(len(sizes)), key=lambda position: (-sizes[position], position)):
        for number, left in enumerate(room):
            if sizes[index] <= left:
                bins[number].append(index)
                room[number] -= sizes[index]
                break
        else:
            bins.append([index])
            room.append(budget - sizes[index])
    return [sorted(one) for one in bins]


def _cut(tree: PrefixTree, root: int, budget: int) -> list[tuple[int, list[int]]]:
    """The rows of one tree in groups of at most `budget` tokens each, as `(tokens, rows)`: neighbors in the order of
    their tokens, as many as fit.
    """
    keys = {row: _key(tree.lines[row]) for index in tree.below(root) for row in tree.branches[index].rows}
    groups: list[tuple[int, list[int]]] = []
    last = b""
    for row in sorted(keys, key=lambda one: (keys[one], one)):
        whole = len(keys[row]) // WIDTH
        # Sorted: a row shares the most with the one before it, and what that does not have is new.
        new = whole - _shared(keys[row], last)
        last = keys[row]
        if groups and (groups[-1][0] + new <= budget or new == 0 or groups[-1][0] + new == whole):
            groups[-1] = (groups[-1][0] + new, [*groups[-1][1], row])
        else:
            groups.append((whole, [row]))
    return groups


@dataclass
class _Layout:
    """Puts branches of a tree into sequences, and knows each one's place: `(sequence, begin, first position)`."""

    tree: PrefixTree
    made: int = 0
    places: dict[int, tuple[int, int, int]] = field(default_factory=dict)

    def add(self, parts: Sequence[tuple[int, int]], parent: int | None = None) -> Packed:
        """The next sequence: `(branch, first position)`, parents before children. Trunks come first in it."""
        ids: list[int] = []
        positions: list[int] = []
        runs: list[Run] = []
        answers: dict[int, tuple[int, ...]] = {}
        here = self.made
        self.made += 1
        for index, start in sorted(parts, key=lambda part: part[1] > 0):
            branch = self.tree.branches[index]
            past: list[PastSlice] = []
            before: list[tuple[int, int]] = []
            for place, first, end in self._path(branch.parent, start):
                sequence, begin, began = self.places[place]
                slice_ = begin + first - began, begin + end - began
                if sequence == here:
                    before.append(slice_)
                else:
                    past.append(PastSlice(sequence, *slice_))
            begin = len(ids)
            ids.extend(self.tree.lines[branch.row].ids[start : branch.end])
            positions.extend(range(start, branch.end))
            runs.append(Run(begin, len(ids), start, tuple(past), tuple(before)))
            self.places[index] = here, begin, start
            for row in branch.rows:
                answers[row] = tuple(self._answer(index, row))
        return Packed(tuple(ids), tuple(positions), tuple(runs), dict(sorted(answers.items())), parent)

    def _path(self, branch: int | None, end: int) -> list[tuple[int, int, int]]:
        """Positions 0 to `end` on the way through `branch`, as `(branch, first, end)` in order."""
        found: list[tuple[int, int, int]] = []
        while branch is not None and end > 0:
            start = self.places[branch][2]
            if start < end:
                found.append((branch, start, end))
                end = start
            branch = self.tree.branches[branch].parent
        return found[::-1]

    def _answer(self, branch: int, row: int) -> Iterable[int]:
        line = self.tree.lines[row]
        for place, first, end in self._path(branch, line.length - 1):
            _, begin, began = self.places[place]
            yield from range(begin + max(first, line.start - 1) - began, begin + end - began)
