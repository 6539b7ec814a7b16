"""Distance of a step, measured on the first answers of its batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from openclaw_rl.shared.objective import losses
from openclaw_rl.shared.objective.metrics import measured
from openclaw_rl.shared.records import Sample
from openclaw_rl.trainer_local.training.batching import row_of
from openclaw_rl.trainer_local.training.distributions import Distribution, Likeliest, in_same_bins, kept
from openclaw_rl.trainer_local.training.targets import LocalTarget, RunModel

Found = TypeVar("Found")

NO_PROBABILITY = -100.0
"""Log-probability of a token that counts for nothing, and still a number."""


class StepDistances:
    """Created before a step; all at temperature 1. This process measures the first answers of `samples` that are in
    `own`; `gather` collects the values of all processes.
    """

    def __init__(
        self,
        samples: Sequence[Sample],
        own: Sequence[Sample],
        run_policy: RunModel,
        run_base: RunModel,
        gather: Callable[[list[Tensor]], list[list[Tensor]]],
    ) -> None:
        mine = {sample.sample_id for sample in own}
        chosen = [one for one in samples[: measured(samples)] if one.sample_id in mine]
        self._rows = [row_of(one) for one in chosen]
        self._index = {one.sample_id: index for index, one in enumerate(chosen)}
        self._to_teacher: list[Tensor] = []
        self._run_policy = run_policy
        self._gather = gather
        self._before = self._each(run_policy, lambda _, log_probs: kept(log_probs))
        self._base = self._each(run_base, lambda _, log_probs: kept(log_probs))

    def note_teacher(self, samples: Sequence[Sample], targets: Sequence[LocalTarget | None]) -> None:
        """Compare the base with the teacher, where one is in `targets` of those `samples` that are measured."""
        for sample, target in zip(samples, targets, strict=True):
            index = self._index.get(sample.sample_id)
            if index is not None and target is not None and target.teacher is not None:
                self._to_teacher.append(_divergence(self._base[index], target.teacher))

    def to_teacher(self) -> float | None:
        """Mean of KL(base ‖ teacher) over the tokens that were noted; `None` without any."""
        return self._mean(self._to_teacher)

    def values(self) -> Mapping[str, float]:
        """`kl/parent` and `kl/base`: means over the tokens of KL(new policy ‖ policy before the step) and KL(new policy
        ‖ base); `entropy/mean` of the new policy. All 0 without tokens.
        """

        def compare(index: int, now: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            before, base = (losses.reverse_kl(*in_same_bins(now, [one[index]])) for one in (self._before, self._base))
            return before, losses.entropy(now), base

        found = self._each(self._run_policy, compare).values()
        columns = zip(*found, strict=True) if found else ((), (), ())
        names = ("kl/parent", "entropy/mean", "kl/base")
        return {name: self._mean(list(column)) or 0.0 for name, column in zip(names, columns, strict=True)}

    def _mean(self, values: list[Tensor]) -> float | None:
        """The mean over the tokens of all processes; `None` without any."""
        every = [part for found in self._gather(values) for part in found]
        return float(torch.cat(every).mean()) if every else None

    def _each(self, run: RunModel, use: Callable[[int, Tensor], Found]) -> dict[int, Found]:
        """The results of `use` for a row's index and its log-probabilities `[response length, V]`, by row."""
        found: dict[int, Found] = {}

        def collect(indices: Sequence[int], logits: Tensor) -> None:
            lengths = [self._rows[index].response_length for index in indices]
            for index, part in zip(indices, losses.log_softmax(logits).split(lengths), strict=True):
                found[index] = use(index, part)

        run(self._rows, collect)
        return found


def _divergence(one: Distribution, other: Distribution) -> Tensor:
    """KL(one ‖ other) `[R]`. Of likeliest tokens the bins are those of `other`; those of them that `one` does not keep
    count in its bin for the rest.
    """
    if isinstance(one, Tensor):
        return losses.reverse_kl(*in_same_bins(one, [other]))
    assert isinstance(other, Likeliest), "both are over the same vocabulary"
    same = other.ids.unsqueeze(-1) == one.ids.unsqueeze(-2)
    there = torch.where(same, one.log_probs.unsqueeze(-2), 0.0).sum(dim=-1)
    mine = torch.where(same.any(dim=-1), there, torch.full_like(there, NO_PROBABILITY))
    return losses.reverse_kl(losses.with_tail(mine), losses.with_tail(other.log_probs))
