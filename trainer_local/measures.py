"""How far a step took the policy, measured on the first answers of its batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from shared import losses
from shared.records import Sample
from trainer_local.batching import Row, row_of
from trainer_local.teacher import RunModel, Target

GUARD_TOKENS = 1024
"""Answer tokens of a batch that are looked at; the answer that reaches this is the last."""


class Measures:
    """Made before a step, which it remembers; all at temperature 1."""

    def __init__(self, samples: Sequence[Sample], run_policy: RunModel, run_base: RunModel) -> None:
        self._rows = _first(samples)
        self._run_policy = run_policy
        self._before = self._distributions(run_policy)
        self._base = self._distributions(run_base)

    def distance(self, targets: Sequence[Target | None]) -> float | None:
        """How much the teacher has to teach: the mean of KL(base ‖ teacher) over the tokens whose teacher is in
        `targets` (those of the first samples); `None` without any.
        """
        known = [(index, target.teacher) for index, target in enumerate(targets) if target and index in self._base]
        values = [losses.reverse_kl(self._base[index], teacher) for index, teacher in known if teacher is not None]
        return float(torch.cat(values).mean()) if values else None

    def metrics(self) -> Mapping[str, float]:
        """`kl/parent` and `kl/base`: means over the tokens of KL(new policy ‖ policy before the step) and KL(new policy
        ‖ base); `entropy/mean` of the new policy. All 0 without tokens.
        """
        found: dict[str, float] = {"kl/parent": 0.0, "kl/base": 0.0, "entropy/mean": 0.0}
        if not self._before:
            return found
        now = self._distributions(self._run_policy)
        found["kl/parent"] = self._mean(lambda index: losses.reverse_kl(now[index], self._before[index]))
        found["entropy/mean"] = self._mean(lambda index: losses.entropy(now[index]))
        found["kl/base"] = self._mean(lambda index: losses.reverse_kl(now[index], self._base[index]))
        return found

    def _mean(self, values: Callable[[int], Tensor]) -> float:
        return float(torch.cat([values(index) for index in self._before]).mean())

    def _distributions(self, run: RunModel) -> dict[int, Tensor]:
        """Log-probabilities `[response length, V]` by row."""
        found: dict[int, Tensor] = {}

        def use(indices: Sequence[int], logits: Tensor) -> None:
            lengths = [self._rows[index].response_length for index in indices]
            found.update(zip(indices, losses.log_softmax(logits).split(lengths), strict=True))

        run(self._rows, use)
        return found


def _first(samples: Sequence[Sample]) -> list[Row]:
    rows: list[Row] = []
    tokens = 0
    for sample in samples:
        if tokens >= GUARD_TOKENS:
            break
        rows.append(row_of(sample))
        tokens += len(sample.response_ids)
    return rows
