"""A prompt with its answer as cloud trainers take it: tokens in, the tokens after them as targets.

A text of n tokens has n − 1 places; place t is scored after `ids[: t + 1]`. The answer's first token stands at place
`lead`, one less than the prompt is long, and what comes before is masked with 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openclaw_rl.shared.records import Sample


@dataclass(frozen=True)
class ShiftedText:
    """`ids` of a text less its last token, `targets` `[T]` less its first; `lead` places belong to the prompt."""

    ids: Sequence[int]
    targets: NDArray[np.int64]
    lead: int

    def candidates(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Targets `[T, K]` from candidates `[R, K]` for each token of the answer; token 0 where nothing counts, so
        that a sparse wire need not send it.
        """
        return self._padded(ids, np.int64)

    def masked(self, values: NDArray[Any]) -> NDArray[np.float32]:
        """Values of the answer, `[R]` or `[R, K]`, with 0 at the places of the prompt."""
        return self._padded(values, np.float32)

    def answer(self, values: NDArray[Any]) -> NDArray[Any]:
        """The part of the answer, `[R, …]` of `[T, …]`."""
        return values[self.lead :]

    def _padded(self, values: NDArray[Any], kind: Any) -> NDArray[Any]:
        padded = np.zeros((len(self.ids), *values.shape[1:]), dtype=kind)
        padded[self.lead :] = values
        return padded


def shifted(sample: Sample) -> ShiftedText:
    """The prompt and answer of a sample, from whatever sequences the record holds."""
    text = [int(token) for part in (sample.prompt_ids, sample.response_ids) for token in part]
    return ShiftedText(text[:-1], np.array(text[1:], dtype=np.int64), len(sample.prompt_ids) - 1)
