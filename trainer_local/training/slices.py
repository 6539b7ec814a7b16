"""Logits of answers, a slice at a time, so that no answer's logits over the whole vocabulary are in memory together.

A token's logits in single precision take 594 KiB over 151,936 tokens, its hidden states a hundredth of that. So models
hand out hidden states, and logits are made of as many of them as `LOGIT_BYTES` allow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from torch import Tensor

from openclaw_rl.trainer_local.training.batching import Row

LOGIT_BYTES = 512 << 20
"""Logits in single precision made at once."""

Head = Callable[[Tensor], Tensor]
"""Makes logits `[n, V]`, in single precision at least, from hidden states `[n, d]`."""


@dataclass(frozen=True)
class Slice:
    """Tokens `start` to `end` of the answer of row `row`."""

    row: int
    start: int
    end: int

    @property
    def tokens(self) -> int:
        """Number of tokens."""
        return self.end - self.start


@dataclass(frozen=True)
class AnswerStates:
    """The answers of `rows` (their indices) after a pass, one after the other, of `lengths` tokens each. `states`
    `[N, d]` are the hidden states that their tokens are drawn from; `head` is valid as long as the pass's weights.
    """

    rows: Sequence[int]
    lengths: Sequence[int]
    states: Tensor
    head: Head
    vocab_size: int

    @property
    def most(self) -> int:
        """Maximum tokens whose logits are made at once."""
        return max(1, LOGIT_BYTES // (4 * self.vocab_size))

    def each_slice(self, use: Callable[[Sequence[Slice], Tensor], None], *, whole: bool = False) -> None:
        """Call `use` on slices of the answers and their logits `[n, V]`, in order. With `whole` no answer is cut, and
        a long one exceeds `LOGIT_BYTES`.
        """
        begin = 0
        for slices in self._answers() if whole else self._slices():
            end = begin + sum(one.tokens for one in slices)
            use(slices, self.head(self.states[begin:end]))
            begin = end

    def by_row(self) -> Iterator[tuple[int, Tensor]]:
        """Each row, and the hidden states of its answer."""
        return zip(self.rows, self.states.split(list(self.lengths)), strict=True)

    def _slices(self) -> Iterator[list[Slice]]:
        found: list[Slice] = []
        free = self.most
        for row, length in zip(self.rows, self.lengths, strict=True):
            start = 0
            while start < length:
                end = min(length, start + free)
                found.append(Slice(row, start, end))
                free -= end - start
                start = end
                if not free:
                    yield found
                    found, free = [], self.most
        if found:
            yield found

    def _answers(self) -> Iterator[list[Slice]]:
        found: list[Slice] = []
        tokens = 0
        for row, length in zip(self.rows, self.lengths, strict=True):
            if found and tokens + length > self.most:
                yield found
                found, tokens = [], 0
            found.append(Slice(row, 0, length))
            tokens += length
        if found:
            yield found


Found = TypeVar("Found")

UseAnswers = Callable[[AnswerStates], None]
RunModel = Callable[[Sequence[Row], UseAnswers], None]
"""Puts rows through a model and calls back with the answers of each pass."""


def differentiating(use: Callable[[Sequence[Slice], Tensor], Tensor], *, whole: bool = False) -> UseAnswers:
    """Differentiates the losses that `use` returns for slices and their logits `[n, V]`, one after the other, to the
    hidden states. `whole` as in `each_slice`.
    """

    def add_gradient(slices: Sequence[Slice], logits: Tensor) -> None:
        loss = use(slices, logits)
        if loss.requires_grad:
            loss.backward()

    return lambda answers: answers.each_slice(add_gradient, whole=whole)


def gather_slices(run: RunModel, rows: Sequence[Row], use: Callable[[Slice, Tensor], Found]) -> dict[int, list[Found]]:
    """The results of `use` for each slice and its logits `[n, V]`, in order, by row."""
    found: dict[int, list[Found]] = {}

    def collect(slices: Sequence[Slice], logits: Tensor) -> None:
        for one, part in zip(slices, logits.split([one.tokens for one in slices]), strict=True):
            found.setdefault(one.row, []).append(use(one, part))

    if rows:
        run(rows, lambda answers: answers.each_slice(collect))
    return found
