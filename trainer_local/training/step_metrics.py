"""Distance of a step, measured on the first answers that it learns from.

The policy before the step is read off the logits of the first pass, which no update precedes, and the base off the
targets. So only the policy after the step takes a pass of its own; with dropout the one before it does too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from openclaw_rl.shared.objective import losses
from openclaw_rl.shared.objective.early_stop import stops_early
from openclaw_rl.shared.objective.metrics import measured
from openclaw_rl.shared.objective.parts import part_of
from openclaw_rl.shared.objective.terms import hints_of, needs_base, terms_of
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.trainer import Recipe
from openclaw_rl.trainer_local.training.batching import row_of
from openclaw_rl.trainer_local.training.distributions import (
    Distribution,
    Likeliest,
    in_same_bins,
    joined,
    kept,
    likeliest,
    part_of_distribution,
)
from openclaw_rl.trainer_local.training.slices import Slice, gather_slices
from openclaw_rl.trainer_local.training.targets import LocalTarget

if TYPE_CHECKING:
    from openclaw_rl.trainer_local.training.step import Learning

AFTER_TOKENS = 256
"""Maximum answer tokens that the policy after a step is measured on."""

BASE_EVERY = 10
"""Steps from one that measures the distance from the base to the next, where the loss does not ask for the base."""

NO_PROBABILITY = -100.0
"""Log-probability of a token that counts for nothing, and still a number."""


class StepDistances:
    """The distances of step `number`, all at temperature 1. `first` are the samples of its first update, of which this
    process trains on `own`; all processes measure together.
    """

    def __init__(
        self,
        learning: Learning,
        samples: Sequence[Sample],
        first: Sequence[Sample],
        own: Sequence[Sample],
        recipe: Recipe,
        number: int,
    ) -> None:
        self._learning = learning
        self._recipe = recipe
        self._samples = {one.sample_id: one for one in _first_tokens(first, recipe)}
        near = samples[: measured(samples)] if stops_early(recipe) else ()
        self._near = frozenset(one.sample_id for one in near if hints_of(one, recipe))
        self._with_base = number % BASE_EVERY == 1 or all(
            needs_base(terms_of(one, recipe)) or name in self._near for name, one in self._samples.items()
        )
        self.compared = self._near | frozenset(self._samples if self._with_base else ())
        """Sample ids whose answers the base is asked for in the first pass."""
        self._before: dict[str, list[Distribution]] = {}
        self._base: dict[str, Distribution] = {}
        self._to_teacher: list[Tensor] = []
        if learning.dropout:
            self._measure_before([one.sample_id for one in own if one.sample_id in self._samples])

    def note_targets(self, samples: Sequence[Sample], targets: Sequence[LocalTarget | None]) -> None:
        """Take the base, and its distance from the teacher, from the targets of the first pass."""
        for sample, target in zip(samples, targets, strict=True):
            name = sample.sample_id
            if target is None or target.base is None:
                continue
            if name in self._samples:
                self._base[name] = part_of_distribution(target.base, 0, len(self._samples[name].response_ids))
            if name in self._near and target.teacher is not None:
                self._to_teacher.append(_divergence(self._in_bins(target.base), target.teacher))

    def note_logits(self, samples: Sequence[Sample], slices: Sequence[Slice], logits: Tensor) -> None:
        """Take the policy before the step from logits `[n, V]` of slices of the answers of `samples` before the first
        update.
        """
        if self._learning.dropout:
            return
        for sample, one, part in zip(samples, slices, logits.split([one.tokens for one in slices]), strict=True):
            cut = self._samples.get(sample.sample_id)
            tokens = 0 if cut is None else len(cut.response_ids) - one.start
            if tokens > 0:
                found = kept(losses.log_softmax(part[:tokens].detach()))
                self._before.setdefault(sample.sample_id, []).append(found)

    def _in_bins(self, base: Distribution) -> Distribution:
        """The base in the bins of the loss: its own likeliest tokens where it compares those of the policy, which the
        base was before the first step.
        """
        recipe = self._recipe
        if recipe.distillation != "topk" or recipe.topk_from == "teacher":
            return base
        if isinstance(base, Likeliest):
            return Likeliest(base.ids[:, : recipe.topk], base.log_probs[:, : recipe.topk])
        return likeliest(base, recipe.topk)

    def to_teacher(self) -> float | None:
        """Mean of KL(base ‖ teacher) over the tokens that were noted; `None` without any."""
        return self._mean(self._to_teacher)

    def values(self) -> Mapping[str, float]:
        """`kl/parent` and `kl/base`: means over the tokens of KL(new policy ‖ policy before the step) and KL(new policy
        ‖ base), the latter only where the base was asked for all of them; `entropy/mean` of the new policy. All 0
        without tokens.
        """
        names = list(self._before)
        known = [{name: joined(parts) for name, parts in self._before.items()}]
        known += [self._base] if self._with_base else []

        def compare(one: Slice, logits: Tensor) -> list[Tensor]:
            now = losses.log_softmax(logits)
            theirs = (part_of_distribution(each[names[one.row]], one.start, one.end) for each in known)
            return [losses.entropy(now), *(losses.reverse_kl(*in_same_bins(now, [each])) for each in theirs)]

        rows = [row_of(self._samples[name]) for name in names]
        found = gather_slices(self._learning.run_policy, rows, compare)
        parts = [part for index in sorted(found) for part in found[index]]
        columns = ("entropy/mean", "kl/parent", "kl/base")[: 1 + len(known)]
        return {name: self._mean([part[place] for part in parts]) or 0.0 for place, name in enumerate(columns)}

    def _measure_before(self, names: Sequence[str]) -> None:
        rows = [row_of(self._samples[name]) for name in names]
        found = gather_slices(self._learning.run_policy, rows, lambda _, logits: kept(losses.log_softmax(logits)))
        self._before = {names[index]: parts for index, parts in found.items()}

    def _mean(self, values: list[Tensor]) -> float | None:
        """The mean over the tokens of all processes; `None` without any."""
        every = [part for found in self._learning.gather(values) for part in found]
        return float(torch.cat(every).mean()) if every else None


def _first_tokens(samples: Iterable[Sample], recipe: Recipe) -> list[Sample]:
    """The first `AFTER_TOKENS` answer tokens of samples that take part in the loss, as samples."""
    found: list[Sample] = []
    free = AFTER_TOKENS
    for sample in samples:
        if free and terms_of(sample, recipe):
            found.append(part_of(sample, 0, free))
            free -= len(found[-1].response_ids)
    return found


def _divergence(one: Distribution, other: Distribution) -> Tensor:
    """KL(one ‖ other) `[R]`. Of likeliest tokens the bins are those of `other`; those of them that `one` does not keep
    count in its bin for the rest.
    """
    if isinstance(one, Tensor):
        return losses.reverse_kl(*in_same_bins(one, [other]))
    if isinstance(other, Tensor):
        theirs, mine = in_same_bins(other, [one])
        return losses.reverse_kl(mine, theirs)
    same = other.ids.unsqueeze(-1) == one.ids.unsqueeze(-2)
    there = torch.where(same, one.log_probs.unsqueeze(-2), 0.0).sum(dim=-1)
    mine = torch.where(same.any(dim=-1), there, torch.full_like(there, NO_PROBABILITY))
    return losses.reverse_kl(losses.with_tail(mine), losses.with_tail(other.log_probs))
