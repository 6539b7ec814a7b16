"""The rows of a batch, and how sequences are put side by side so that padding costs little.

A row is a prompt with the answer given to it. What rows share is the matter of `prefix_tree`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """Token ids of a prompt followed by an answer; `start` is the index of the answer's first token (the prompt's
    length, at least 1).
    """

    ids: tuple[int, ...]
    start: int

    @property
    def length(self) -> int:
        """Tokens of prompt and answer."""
        return len(self.ids)

    @property
    def response_length(self) -> int:
        """Tokens of the answer."""
        return len(self.ids) - self.start


def row(prompt_ids: Sequence[int], response_ids: Sequence[int]) -> Row:
    """A row of plain ints, from whatever sequences the records hold."""
    return Row((*(int(token) for token in prompt_ids), *(int(token) for token in response_ids)), len(prompt_ids))


def chunks(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Indices of `lengths` in chunks whose padded tokens (members × longest) stay within `budget`, shortest first; one
    alone may exceed it.
    """
    found: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda position: (lengths[position], position)):
        if found and lengths[index] * (len(found[-1]) + 1) <= budget:
            found[-1].append(index)
        else:
            found.append([index])
    return found
