"""The metrics of a batch's loss, counted in one way for every trainer, so that they can be compared."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence

from openclaw_rl.shared.errors import TrainerError
from openclaw_rl.shared.objective.terms import LESSONS, TERMS, hints_of, signal
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.trainer import Recipe, StepReport

REPORTED = ("binary", "opd")
"""Under `distillation = "token"`: the policy loss by either advantage alone, reported and not trained."""

MEASURED_TOKENS = 512
"""Answer tokens of a batch that distances between policies are measured on."""


def measured(samples: Sequence[Sample]) -> int:
    """The number of samples at the start of a batch that distances are measured on: up to the one whose answer reaches
    `MEASURED_TOKENS`.
    """
    tokens = 0
    for index, sample in enumerate(samples):
        if tokens >= MEASURED_TOKENS:
            return index
        tokens += len(sample.response_ids)
    return len(samples)


class BatchMetrics:
    """Sums over a batch. `sizes` are the weighted answer tokens that each term applies to, or the weighted answers
    (`Recipe.aggregation`); `denominators` are the sizes that each term is divided by. `losses` (already weighted, by
    term) and `reported` are the sums of one pass, which `BatchLoss` adds to.

    All terms that teach share one denominator, the size of the answers that teach: with one hint among sixteen rewards
    the distillation is one sixteenth of the batch. Under `sample` it is that of `kl_base` and `entropy` too. An anchor
    is no lesson: its term is a mean over the anchors.
    """

    def __init__(self, samples: Sequence[Sample], terms: Sequence[frozenset[str]], recipe: Recipe) -> None:
        """`terms`: those that each sample counts in."""
        self._recipe = recipe
        pairs = list(zip(samples, terms, strict=True))
        by_sample = recipe.aggregation == "sample"
        sizes = [sample.weight * (1 if by_sample else len(sample.response_ids)) for sample in samples]
        self.sizes = {
            term: math.fsum(size for size, found in zip(sizes, terms, strict=True) if term in found) for term in TERMS
        }
        lessons = math.fsum(size for size, found in zip(sizes, terms, strict=True) if found & LESSONS)
        shared = LESSONS | {"kl_base", "entropy"} if by_sample else LESSONS
        self.denominators = {term: lessons if term in shared else self.sizes[term] for term in TERMS}
        rewards = [sample.reward for sample in samples if sample.reward is not None]
        counts = {term: sum(term in found for found in terms) for term in TERMS}
        if counts["policy"]:
            taking = [sample for sample, found in pairs if "policy" in found]
            counts["distill"] = sum(bool(hints_of(sample, recipe)) for sample in taking)
            counts["binary"] = sum(bool(signal(sample, recipe)) for sample in taking)
        counts["rehearsal"] = sum(sample.origin == "rehearsal" for sample in samples)
        self._fixed = {f"samples/{name}": float(count) for name, count in counts.items()}
        self._fixed |= {"reward/mean": _mean(rewards), "reward/std": _deviation(rewards)}
        self.start_pass()

    def start_pass(self) -> None:
        """Forget the sums of the pass before."""
        self.losses = dict.fromkeys(TERMS, 0.0)
        self.reported = dict.fromkeys(REPORTED, 0.0)
        self._ratios: list[float] = []
        self._advantages: list[float] = []

    def add(self, ratios: Sequence[float], advantages: Sequence[float]) -> None:
        """Count tokens with their importance ratios and advantages."""
        self._ratios.extend(ratios)
        self._advantages.extend(advantages)

    @property
    def distance(self) -> float:
        """The mean of distillation and imitation over their own answers in this pass, weight applied; 0 without any."""
        size = self.sizes["distill"] + self.sizes["imitate"]
        total = self.losses["distill"] + self.losses["imitate"]
        return total * self.denominators["distill"] / size if size else 0.0

    def merge(self, parts: Sequence[BatchMetrics]) -> None:
        """Add `parts` of a pass over this batch: each over other samples of it, in means over those alone, or over the
        whole batch.
        """
        for part in parts:
            for term, value in part.losses.items():
                whole = self.denominators[term]
                self.losses[term] += value * part.denominators[term] / whole if whole else value
            for name, value in part.reported.items():
                whole = self.denominators["policy"]
                self.reported[name] += value * part.denominators["policy"] / whole if whole else value
            self._ratios += part._ratios
            self._advantages += part._advantages

    def values(self, *, share: float = 1.0) -> dict[str, float]:
        """Sums of this pass, of which only a `share` was made: `loss/total` and each term, moments of ratio and
        advantage (1 and 0 where no token has one), the ratio's clipped share, sample counts.

        `loss/opd` is another name of `loss/distill`. Under `distillation = "token"` what is trained is `loss/policy`;
        `loss/binary` and `loss/opd` are then the same loss by either advantage alone, and no part of the total.
        """
        found = {f"loss/{term}": value / share for term, value in self.losses.items()}
        found["loss/total"] = sum(found.values())
        if self.sizes["policy"]:
            found |= {f"loss/{name}": value / share for name, value in self.reported.items()}
            found["loss/distill"] = found["loss/opd"]
        found["loss/opd"] = found["loss/distill"]
        low, high = 1 - self._recipe.clip_low, 1 + self._recipe.clip_high
        clipped = sum(not low <= ratio <= high for ratio in self._ratios)
        return {
            **found,
            "ratio/mean": _mean(self._ratios) if self._ratios else 1.0,
            "ratio/clipped": clipped / len(self._ratios) if self._ratios else 0.0,
            "advantage/mean": _mean(self._advantages),
            "advantage/std": _deviation(self._advantages),
            **self._fixed,
        }


def step_report(
    number: int, samples: Sequence[Sample], metrics: Mapping[str, float], *, rate: float, started: float
) -> StepReport:
    """The report of a step that began at `started` (`time.perf_counter`). Raises `TrainerError` for a metric that is
    not finite.
    """
    common = {
        "learning_rate": rate,
        "tokens": float(sum(len(sample.prompt_ids) + len(sample.response_ids) for sample in samples)),
        "seconds": time.perf_counter() - started,
    }
    broken = sorted(name for name, value in metrics.items() if not math.isfinite(value))
    if broken:
        raise TrainerError(f"Step {number}: {', '.join(broken)} not finite after the step; it was undone")
    sample_ids = [sample.sample_id for sample in samples]
    return StepReport(step=number, sample_ids=sample_ids, metrics={**metrics, **common})


def _mean(values: Sequence[float]) -> float:
    """0 for none."""
    return math.fsum(values) / len(values) if values else 0.0


def _deviation(values: Sequence[float]) -> float:
    """The standard deviation of a whole population; 0 for none."""
    mean = _mean(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values)) if values else 0.0
