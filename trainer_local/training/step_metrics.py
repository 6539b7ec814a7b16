"""Distance of a step, measured on the first answers of its batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from openclaw_rl.shared.objective import losses
from openclaw_rl.shared.objective.metrics import measured
from openclaw_rl.shared.records import Sample
from openclaw_rl.trainer_local.training.batching import row_of
from openclaw_rl.trainer_local.training.targets import LocalTarget, RunModel


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
        self._rows = [row_of(one) for one in samples[: measured(samples)] if one.sample_id in mine]
        self._run_policy = run_policy
        self._gather = gather
        self._before = self._distributions(run_policy)
        self._base = self._distributions(run_base)

    def to_teacher(self, targets: Sequence[LocalTarget | None]) -> float | None:
        """Mean of KL(base ‖ teacher) over the tokens with a teacher in `targets` (those of the first samples); `None`
        without any.
        """
        known = [(index, target.teacher) for index, target in enumerate(targets) if target and index in self._base]
        values = [losses.reverse_kl(self._base[index], teacher) for index, teacher in known if teacher is not None]
        return self._mean(values)

    def values(self) -> Mapping[str, float]:
        """`kl/parent` and `kl/base`: means over the tokens of KL(new policy ‖ policy before the step) and KL(new policy
        ‖ base); `entropy/mean` of the new policy. All 0 without tokens.
        """
        now = self._distributions(self._run_policy)
        values = {
            "kl/parent": [losses.reverse_kl(now[index], self._before[index]) for index in self._before],
            "entropy/mean": [losses.entropy(now[index]) for index in self._before],
            "kl/base": [losses.reverse_kl(now[index], self._base[index]) for index in self._before],
        }
        return {name: self._mean(found) or 0.0 for name, found in values.items()}

    def _mean(self, values: list[Tensor]) -> float | None:
        """The mean over the tokens of all processes; `None` without any."""
        every = [part for found in self._gather(values) for part in found]
        return float(torch.cat(every).mean()) if every else None

    def _distributions(self, run: RunModel) -> dict[int, Tensor]:
        """Log-probabilities `[response length, V]` by row."""
        found: dict[int, Tensor] = {}

        def use(indices: Sequence[int], logits: Tensor) -> None:
            lengths = [self._rows[index].response_length for index in indices]
            found.update(zip(indices, losses.log_softmax(logits).split(lengths), strict=True))

        run(self._rows, use)
        return found
