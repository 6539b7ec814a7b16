"""The rows of a batch, and how sequences are put side by side so that padding costs little.

A row is a prompt with the answer given to it. What rows share is the matter of `prefix_tree`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from openclaw_rl.shared.errors import TrainerError
from openclaw_rl.shared.messages.images import shown_again
from openclaw_rl.shared.records import PromptImage, Sample

PASS_TOKENS = 256
"""Tokens that take a GPU as long as what a pass costs beyond its tokens. An estimate: no committed program measures it.
On a CPU a pass costs less.
"""


@dataclass(frozen=True)
class Row:
    """Token ids of a prompt followed by an answer; `start` is the index of the answer's first token (the prompt's
    length, at least 1). `images` stand in the prompt (`trainer_local.models.vision`). `sample_id` is the sample that
    the answer is of, for messages.
    """

    ids: tuple[int, ...]
    start: int
    images: tuple[PromptImage, ...] = ()
    sample_id: str = ""

    @property
    def length(self) -> int:
        """Tokens of prompt and answer."""
        return len(self.ids)

    @property
    def response_length(self) -> int:
        """Tokens of the answer."""
        return len(self.ids) - self.start


def row(
    prompt_ids: Sequence[int], response_ids: Sequence[int], images: Sequence[PromptImage] = (), sample_id: str = ""
) -> Row:
    """A row of plain ints, from whatever sequences the records hold."""
    ids = (*(int(token) for token in prompt_ids), *(int(token) for token in response_ids))
    return Row(ids, len(prompt_ids), tuple(images), sample_id)


def row_of(sample: Sample) -> Row:
    """The answer of a sample after its own prompt."""
    return row(sample.prompt_ids, sample.response_ids, sample.images, sample.sample_id)


def images_under(sample: Sample, hinted_prompt: Sequence[int]) -> Sequence[PromptImage]:
    """The images of a sample at their places in one of its hinted prompts. Raises `TrainerError`."""
    try:
        return shown_again(sample.images, sample.prompt_ids, hinted_prompt)
    except ValueError as error:
        raise TrainerError(f"sample {sample.sample_id}: a hinted prompt cannot be trained on: {error}") from error


def chunks(lengths: Sequence[int], budget: int, most_padding: int = sys.maxsize) -> list[list[int]]:
    """Indices of `lengths` in chunks whose padded tokens (members × longest) stay within `budget`, shortest first; one
    alone may exceed it. No member adds more than `most_padding` tokens to those before it.
    """
    found: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda position: (lengths[position], position)):
        members = len(found[-1]) if found else 0
        grown = members * (lengths[index] - lengths[found[-1][-1]]) if found else 0
        if members and lengths[index] * (members + 1) <= budget and grown <= most_padding:
            found[-1].append(index)
        else:
            found.append([index])
    return found
