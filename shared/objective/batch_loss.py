"""The loss of a batch, for every trainer: the factor and mean of each term, the advantages, and the metrics.

    total = (distill · Σ distillation             of samples with hinted prompts: reverse KL to the teacher over the
                                                  vocabulary, over K tokens and a tail, or clipped differences
             + binary · Σ clipped policy loss           of samples whose reward may train
             + distill · Σ KL(teacher ‖ π)) / N         of revisions and demonstrations
          + anchor  · mean KL(base ‖ π)           over anchors
          + kl_base · mean KL(π ‖ base)           over the turns among the samples of the first two
          − entropy · mean entropy of π           over the same

Under `aggregation = "token"` the sums are over tokens, and N is the number of answer tokens of the samples in these
sums. Under `sample` they are over the mean of each answer's tokens, and N is the number of samples in the batch
(slime's `sum_of_sample_mean`, divided by the batch size); the last two means then have the same N.

Under `ratio_weighted` the distillation of each token counts with its importance ratio.

Under `distillation = "token"` one policy loss takes the place of the first two, its advantage binary · reward +
distill · (log π_T − log μ). A custom loss takes the place of all. Samples count with their weights. Trainers differ in
how the log-probabilities come and in what makes the gradient of a share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from openclaw_rl.shared.objective import losses
from openclaw_rl.shared.objective.metrics import REPORTED, BatchMetrics
from openclaw_rl.shared.objective.terms import signal
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.trainer import Recipe

PolicyLoss = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Values `[N]` from the policy's logprobs, those of the sampling, and advantages, all `[N]`."""


class BatchLoss:
    """The loss of the batch `samples`; `terms` are those of each sample. Any part of it is computed at a time: some of
    the samples, or parts of their answers (`parts.part_of`).
    """

    def __init__(self, samples: Sequence[Sample], terms: Sequence[frozenset[str]], recipe: Recipe) -> None:
        self._recipe = recipe
        self._lengths = {sample.sample_id: len(sample.response_ids) for sample in samples}
        self._factors = {
            "distill": recipe.w_opd,
            "binary": recipe.w_rl,
            "policy": 1.0,
            "imitate": recipe.w_opd,
            "anchor": recipe.w_anchor,
            "kl_base": recipe.kl_base,
            "entropy": -recipe.entropy,
            "custom": 1.0,
        }
        self.metrics = BatchMetrics(samples, terms, recipe)

    def share(self, term: str, values: Tensor, samples: Sequence[Sample]) -> Tensor:
        """The share of `values` `[N]`, of the answers of `samples`, in the batch's loss: a scalar, counted in the
        metrics.
        """
        share = self._factors[term] * self._mean(term, values, samples)
        self.metrics.losses[term] += float(share.detach())
        return share

    def token_weight(self, term: str, sample: Sample) -> float:
        """The factor of each token of `sample` in `share`, for trainers that only send advantages."""
        return self._factors[term] * self._weight(sample) / (self.metrics.denominators[term] or 1.0)

    def policy_share(
        self,
        term: str,
        logprobs: Tensor,
        samples: Sequence[Sample],
        teacher: Sequence[Tensor | None],
        loss: PolicyLoss | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The share of `samples` in the policy loss, and the advantages `[N]`. `term` is `binary` (the advantage is the
        reward) or `policy` (the sum of both advantages; one that a sample does not have is exactly 0).

        `logprobs` `[N]` are the policy's of the sampled tokens, `teacher` for each sample the hinted teacher's `[R]`,
        `None` without one; all at the temperature of the sampling. `loss` is `clipped_policy_loss` unless given.
        """
        recipe, loss = self._recipe, loss or self.clipped_policy_loss
        behavior = behavior_logprobs(samples, logprobs.device)
        advantages = per_token([signal(sample, recipe) for sample in samples], samples, logprobs.device)
        if term == "policy":
            parts = zip(teacher, torch.split(behavior, [len(sample.response_ids) for sample in samples]), strict=True)
            taught = torch.cat([own if known is None else known for known, own in parts])
            differences = losses.distillation_advantages(taught, behavior, recipe.advantage_clip)
            alone = recipe.w_rl * advantages, recipe.w_opd * differences
            with torch.no_grad():
                for name, part in zip(REPORTED, alone, strict=True):
                    value = self._mean(term, loss(logprobs, behavior, part), samples)
                    self.metrics.reported[name] += float(value)
            advantages = alone[0] + alone[1]
        ratio = losses.importance_ratio(logprobs.detach(), behavior, recipe.ratio_cap)
        self.metrics.add(ratio.tolist(), advantages.tolist())
        return self.share(term, loss(logprobs, behavior, advantages), samples), advantages

    def clipped_policy_loss(self, logprobs: Tensor, behavior: Tensor, advantages: Tensor) -> Tensor:
        """`losses.clipped_policy_loss` with the bounds of the recipe."""
        recipe = self._recipe
        return losses.clipped_policy_loss(
            logprobs,
            behavior,
            advantages,
            clip_low=recipe.clip_low,
            clip_high=recipe.clip_high,
            ratio_cap=recipe.ratio_cap,
        )

    def distillation(
        self, log_probs: Tensor, teacher: Tensor, old: Tensor | None = None, support: Tensor | None = None
    ) -> Tensor:
        """The distillation's loss `[N]` from the policy's and the teacher's distributions, the recipe's `divergence`:
        over the vocabulary, or over K tokens and a tail. Under `select` over K tokens alone, or those of them in
        `support` `[N, K]`, with `old` the policy's before the step.
        """
        recipe = self._recipe
        if recipe.distillation != "select":
            divergence = losses.jensen_shannon if recipe.divergence == "jensen-shannon" else losses.reverse_kl
            return divergence(log_probs, teacher)
        assert old is not None, "the policy before the step is asked wherever there is a hint"
        return losses.select_loss(
            log_probs,
            old,
            losses.select_advantages(old, teacher, recipe.advantage_clip, support),
            clip_low=recipe.clip_low,
            clip_high=recipe.clip_high,
        )

    def ratio_weights(self, logprobs: Tensor, samples: Sequence[Sample]) -> Tensor:
        """The factor `[N]` of each token under `ratio_weighted`, from the policy's logprobs of the sampled tokens `[N]`
        at the temperature of the sampling: the truncated importance ratio, 1 for answers without one. No gradient.
        """
        ratio = losses.importance_ratio(
            logprobs.detach(), behavior_logprobs(samples, logprobs.device), self._recipe.ratio_cap
        )
        valid = per_token([float(not sample.no_ratio) for sample in samples], samples, logprobs.device) > 0
        return torch.where(valid, ratio, torch.ones_like(ratio))

    def _mean(self, term: str, values: Tensor, samples: Sequence[Sample]) -> Tensor:
        weights = per_token([self._weight(sample) for sample in samples], samples, values.device)
        return losses.token_mean(values, weights, self.metrics.denominators[term])

    def _weight(self, sample: Sample) -> float:
        """The weight of each token of an answer; under `sample` they add up to the sample's."""
        length = self._lengths[sample.sample_id] if self._recipe.aggregation == "sample" else 1
        return sample.weight / (length or 1)


def base_comparison(term: str, log_probs: Tensor, base: Tensor | None) -> Tensor:
    """The loss `[N]` of `anchor`, `kl_base` or `entropy` from the policy's and the base's distributions."""
    if term == "entropy":
        return losses.entropy(log_probs)
    assert base is not None, "the base is asked for these terms"
    return losses.forward_kl(base, log_probs) if term == "anchor" else losses.reverse_kl(log_probs, base)


def per_token(values: Sequence[float], samples: Sequence[Sample], device: torch.device) -> Tensor:
    """The value of each sample at each token of its answer `[N]`."""
    repeats = torch.tensor([len(sample.response_ids) for sample in samples], device=device)
    return torch.tensor(values, dtype=torch.float32, device=device).repeat_interleave(repeats)


def behavior_logprobs(samples: Sequence[Sample], device: torch.device) -> Tensor:
    """Logprobs `[N]` of the sampled tokens at their sampling."""
    values = [value for sample in samples for value in sample.logprobs]
    return torch.tensor(values, dtype=torch.float32, device=device)
