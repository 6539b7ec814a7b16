"""What the loss of a batch was made of: counted in one way for every trainer, so that they can be compared."""

from __future__ import annotations

from collections.abc import Sequence

from openclaw_rl.shared.objective.moments import Moments
from openclaw_rl.shared.objective.terms import TERMS, hints_of, signal
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.trainer import Recipe

REPORTED = ("binary", "opd")
"""Under `distillation = "token"`: the policy loss by either advantage alone, reported and not trained."""


def factors(recipe: Recipe) -> dict[str, float]:
    """What each term is weighed by."""
    return {
        "distill": recipe.distill,
        "binary": recipe.binary,
        "policy": 1.0,
        "anchor": recipe.anchor,
        "kl_base": recipe.kl_base,
        "entropy": -recipe.entropy,
        "custom": 1.0,
    }


class BatchFigures:
    """Sums over a batch. `tokens` are the weighted answer tokens that each term applies to; `losses` (already weighted,
    by term) and `reported` are added to by the trainer.
    """

    def __init__(self, samples: Sequence[Sample], terms: Sequence[frozenset[str]], recipe: Recipe) -> None:
        """`terms`: those that each sample counts in."""
        self._recipe = recipe
        pairs = list(zip(samples, terms, strict=True))
        self.tokens = {
            term: sum(sample.weight * len(sample.response_ids) for sample, found in pairs if term in found)
            for term in TERMS
        }
        rewards = Moments()
        rewards.add([sample.reward for sample in samples if sample.reward is not None])
        counts = {term: sum(term in found for found in terms) for term in TERMS}
        if counts["policy"]:
            taking = [sample for sample, found in pairs if "policy" in found]
            counts["distill"] = sum(bool(hints_of(sample, recipe)) for sample in taking)
            counts["binary"] = sum(bool(signal(sample, recipe)) for sample in taking)
        counts["rehearsal"] = sum(sample.origin == "rehearsal" for sample in samples)
        self._fixed = {f"samples/{name}": float(count) for name, count in counts.items()}
        self._fixed |= {"reward/mean": rewards.mean, "reward/std": rewards.deviation}
        self.start()

    def start(self) -> None:
        """Forget the sums of the pass before."""
        self.losses = dict.fromkeys(TERMS, 0.0)
        self.reported = dict.fromkeys(REPORTED, 0.0)
        self._ratios, self._advantages = Moments(), Moments()
        self._clipped = 0

    def add(self, ratios: Sequence[float], advantages: Sequence[float]) -> None:
        """Count the ratio and advantage of tokens in."""
        low, high = 1 - self._recipe.clip_low, 1 + self._recipe.clip_high
        self._ratios.add(ratios)
        self._advantages.add(advantages)
        self._clipped += sum(not low <= ratio <= high for ratio in ratios)

    def take(self, parts: Sequence[BatchFigures]) -> None:
        """Become the sum of what `parts` counted in one pass, each over other samples of the same batch."""
        losses = {term: sum(part.losses[term] for part in parts) for term in TERMS}
        reported = {name: sum(part.reported[name] for part in parts) for name in REPORTED}
        ratios, advantages = Moments(), Moments()
        for part in parts:
            ratios.take(part._ratios)
            advantages.take(part._advantages)
        clipped = sum(part._clipped for part in parts)
        self.losses, self.reported, self._clipped = losses, reported, clipped
        self._ratios, self._advantages = ratios, advantages

    def metrics(self) -> dict[str, float]:
        """Sums of this pass: `loss/total` and each term, moments of ratio and advantage (1 and 0 where no token has
        one), the ratio's clipped share, sample counts.

        `loss/opd` is another name of `loss/distill`. Under `distillation = "token"` what is trained is `loss/policy`;
        `loss/binary` and `loss/opd` are then the same loss by either advantage alone, and no part of the total.
        """
        found = {f"loss/{term}": value for term, value in self.losses.items()}
        found["loss/total"] = sum(self.losses.values())
        if self.tokens["policy"]:
            found |= {f"loss/{name}": value for name, value in self.reported.items()}
            found["loss/distill"] = found["loss/opd"]
        found["loss/opd"] = found["loss/distill"]
        return {
            **found,
            "ratio/mean": self._ratios.mean if self._ratios.count else 1.0,
            "ratio/clipped": self._clipped / self._ratios.count if self._ratios.count else 0.0,
            "advantage/mean": self._advantages.mean,
            "advantage/std": self._advantages.deviation,
            **self._fixed,
        }
