"""Which token sequences go through the model together, so that padding and repeated prefixes cost little.

A row is a prompt with the answer given to it. Rows that share a long prefix (an agent's system prompt and tools, one
prompt under several hints) form a group whose prefix is computed once; the rows of a group are cut into chunks by a
token budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shared.errors import TrainerError
from shared.images import shown_again
from shared.records import PromptImage, Sample

SHORTEST_SHARED_PREFIX = 192
"""Tokens. Sharing shorter prefixes costs more (a further forward pass) than it saves."""


@dataclass(frozen=True)
class Row:
    """Token ids of a prompt followed by an answer; `start` is the index of the answer's first token (the prompt's
    length, at least 1). `images` stand in the prompt (`trainer_local.seen`).
    """

    ids: tuple[int, ...]
    start: int
    images: tuple[PromptImage, ...] = ()

    @property
    def length(self) -> int:
        """Tokens of prompt and answer."""
        return len(self.ids)

    @property
    def response_length(self) -> int:
        """Tokens of the answer."""
        return len(self.ids) - self.start


@dataclass(frozen=True)
class Group:
    """`chunks` of row indices; the first `prefix` tokens of all these rows are the same (0: nothing is shared)."""

    prefix: int
    chunks: tuple[tuple[int, ...], ...]


def row(prompt_ids: Sequence[int], response_ids: Sequence[int], images: Sequence[PromptImage] = ()) -> Row:
    """A row of plain ints, from whatever sequences the records hold."""
    ids = (*(int(token) for token in prompt_ids), *(int(token) for token in response_ids))
    return Row(ids, len(prompt_ids), tuple(images))


def row_of(sample: Sample) -> Row:
    """The answer of a sample after its own prompt."""
    return row(sample.prompt_ids, sample.response_ids, sample.images)


def images_under(sample: Sample, hinted_prompt: Sequence[int]) -> Sequence[PromptImage]:
    """The images of a sample at their places in one of its hinted prompts. Raises `TrainerError`."""
    try:
        return shown_again(sample.images, sample.prompt_ids, hinted_prompt)
    except ValueError as error:
        raise TrainerError(f"sample {sample.sample_id}: a hinted prompt cannot be trained on: {error}") from error


def common_prefix(first: Sequence[int], second: Sequence[int], limit: int) -> int:
    """How many leading tokens are the same, at most `limit`."""
    low, high = 0, min(limit, len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _chunks(indices: Sequence[int], costs: Sequence[int], budget: int) -> tuple[tuple[int, ...], ...]:
    """Cut `indices` so that (rows × longest row) stays within `budget`; one row may exceed it by itself."""
    chunks: list[tuple[int, ...]] = []
    current: list[int] = []
    longest = 0
    for index in sorted(indices, key=lambda position: (costs[position], position)):
        longest = max(longest, costs[index])
        if current and longest * (len(current) + 1) > budget:
            chunks.append(tuple(current))
            current, longest = [], costs[index]
        current.append(index)
    if current:
        chunks.append(tuple(current))
    return tuple(chunks)


def _families(rows: Sequence[Row], shortest: int) -> list[tuple[int, list[int]]]:
    """Rows by shared prefix, as `(prefix, indices)`: rows sorted by their tokens, cut where the shared part gets
    short.
    """
    families: list[tuple[int, list[int]]] = []
    for index in sorted(range(len(rows)), key=lambda position: (rows[position].ids, position)):
        # The last prompt token stays outside the prefix: its output is what the answer's first token is drawn from.
        own = rows[index].start - 1
        if families:
            prefix, members = families[-1]
            shared = common_prefix(rows[members[0]].ids, rows[index].ids, min(prefix, own))
            if shared >= shortest and 2 * shared >= prefix:
                families[-1] = (shared, [*members, index])
                continue
        families.append((own, [index]))
    return families


def group_rows(
    rows: Sequence[Row], micro_batch_tokens: int, *, shortest_prefix: int = SHORTEST_SHARED_PREFIX
) -> list[Group]:
    """Every row in exactly one chunk of one group. A chunk's padded tokens, cached prefix not counted, stay within
    the budget.
    """
    alone: list[int] = []
    groups: list[Group] = []
    for prefix, members in _families(rows, shortest_prefix):
        if len(members) == 1 or prefix < shortest_prefix:
            alone.extend(members)
            continue
        # Each row also attends to the cached prefix, and some kernels copy it: an eighth of it counts.
        costs = [line.length - prefix + prefix // 8 for line in rows]
        groups.append(Group(prefix, _chunks(members, costs, micro_batch_tokens)))
    if alone:
        groups.append(Group(0, _chunks(alone, [line.length for line in rows], micro_batch_tokens)))
    return groups
