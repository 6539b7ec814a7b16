"""Which loss terms a sample takes part in, and their sum over a batch.

    total = distill · mean KL(π ‖ hinted base)  over tokens of samples with hinted prompts
          + binary  · mean clipped policy loss   over tokens of samples whose reward may train
          + anchor  · mean KL(base ‖ π)         over tokens of anchors

Each mean is over the tokens of the whole batch that the term applies to, weighted by the samples' weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from shared import losses
from shared.records import Sample
from shared.trainer import Recipe

TERMS = ("distill", "binary", "anchor")


def terms_of(sample: Sample, recipe: Recipe) -> frozenset[str]:
    """The terms that `sample` counts in: `anchor` for anchors, `distill` where there are hinted prompts, `binary`
    where there is an importance ratio and a reward that may train: an explicit one, or under method `binary` any."""
    if not sample.response_ids:
        return frozenset()
    if sample.origin == "anchor":
        return frozenset({"anchor"} if recipe.anchor else ())
    found = set()
    if recipe.distill and sample.hinted_prompts and recipe.distillation == "full":
        found.add("distill")
    if (
        recipe.binary
        and sample.reward
        and not sample.no_ratio
        and (recipe.rewards == "all" or (sample.explicit and recipe.rewards == "explicit"))
    ):
        found.add("binary")
    return frozenset(found)


class Objective:
    """The loss of a batch, micro batch by micro batch, and what it was made of."""

    def __init__(self, samples: Sequence[Sample], recipe: Recipe, device: torch.device) -> None:
        self._recipe = recipe
        self._device = device
        self._terms = {sample.sample_id: terms_of(sample, recipe) for sample in samples}
        self._factors = {"distill": recipe.distill, "binary": recipe.binary, "anchor": recipe.anchor}
        self._tokens = {
            term: sum(sample.weight * len(sample.response_ids) for sample in samples if term in self.terms(sample))
            for term in TERMS
        }
        self._counts = {term: sum(term in self.terms(sample) for sample in samples) for term in TERMS}
        rewards = [sample.reward for sample in samples if sample.reward is not None]
        mean = sum(rewards) / len(rewards) if rewards else 0.0
        self._fixed = {f"samples/{term}": float(count) for term, count in self._counts.items()} | {
            "reward/mean": mean,
            "reward/std": math.sqrt(sum((reward - mean) ** 2 for reward in rewards) / len(rewards)) if rewards else 0.0,
        }
        self.start_epoch()

    def terms(self, sample: Sample) -> frozenset[str]:
        """The terms `sample` counts in."""
        return self._terms[sample.sample_id]

    def start_epoch(self) -> None:
        """Forget the sums of the epoch before."""
        self._losses = dict.fromkeys(TERMS, 0.0)
        self._ratio_sum = self._ratio_clipped = self._ratio_tokens = 0.0

    def loss(self, samples: Sequence[Sample], targets: Sequence[Tensor | None], logits: Tensor) -> Tensor:
        """The share of a micro batch in the batch's loss, a scalar.

        `logits` `[N, V]` belong to the answers of `samples`, one after the other; `targets` are the base's log-
        probabilities `[response length, V]` for those that are distilled or anchors.
        """
        total = logits.new_zeros((), dtype=torch.float32)
        shapes = [len(sample.response_ids) for sample in samples]
        for term in ("distill", "anchor"):
            chosen = [index for index, sample in enumerate(samples) if term in self.terms(sample)]
            if not chosen:
                continue
            parts = logits.split(shapes)
            log_probs = losses.log_softmax(
                torch.cat([parts[index] for index in chosen]) if len(chosen) < len(samples) else logits
            )
            target = torch.cat([self._target(targets[index]) for index in chosen])
            divergence = (
                losses.reverse_kl(log_probs, target) if term == "distill" else losses.forward_kl(target, log_probs)
            )
            total = total + self._add(term, divergence, [samples[index] for index in chosen])
        chosen = [index for index, sample in enumerate(samples) if "binary" in self.terms(sample)]
        if chosen:
            parts = logits.split(shapes)
            total = total + self._binary(
                torch.cat([parts[index] for index in chosen]), [samples[index] for index in chosen]
            )
        return total

    def _binary(self, logits: Tensor, samples: Sequence[Sample]) -> Tensor:
        recipe = self._recipe
        temperatures = self._per_token([sample.temperature for sample in samples], samples)
        ids = torch.tensor(
            [token for sample in samples for token in sample.response_ids], dtype=torch.long, device=self._device
        )
        behavior = torch.tensor(
            [value for sample in samples for value in sample.logprobs], dtype=torch.float32, device=self._device
        )
        logprobs = losses.sampled_logprobs(losses.log_softmax(logits, temperatures), ids)
        advantages = self._per_token([sample.reward or 0.0 for sample in samples], samples)
        policy = losses.clipped_policy_loss(
            logprobs,
            behavior,
            advantages,
            clip_low=recipe.clip_low,
            clip_high=recipe.clip_high,
            ratio_cap=recipe.ratio_cap,
        )
        with torch.no_grad():
            ratio = losses.importance_ratio(logprobs, behavior, recipe.ratio_cap)
            self._ratio_sum += float(ratio.sum())
            self._ratio_clipped += float(((ratio < 1 - recipe.clip_low) | (ratio > 1 + recipe.clip_high)).sum())
            self._ratio_tokens += ratio.numel()
        return self._add("binary", policy, samples)

    def _add(self, term: str, values: Tensor, samples: Sequence[Sample]) -> Tensor:
        weights = self._per_token([sample.weight for sample in samples], samples)
        share = self._factors[term] * losses.token_mean(values, weights, self._tokens[term])
        self._losses[term] += float(share.detach())
        return share

    def _per_token(self, values: Sequence[float], samples: Sequence[Sample]) -> Tensor:
        repeats = torch.tensor([len(sample.response_ids) for sample in samples], device=self._device)
        return torch.tensor(values, dtype=torch.float32, device=self._device).repeat_interleave(repeats)

    def _target(self, target: Tensor | None) -> Tensor:
        assert target is not None, "a distilled sample or an anchor always has a target"
        return target

    def finite(self) -> bool:
        """Whether every term of this epoch is a finite number."""
        return all(math.isfinite(value) for value in self._losses.values())

    def metrics(self) -> dict[str, float]:
        """Sums of this epoch: `loss/total` and each term (already weighted), the ratio's mean and clipped share,
        sample counts.
        """
        found = {f"loss/{term}": value for term, value in self._losses.items()}
        found["loss/total"] = sum(self._losses.values())
        if self._ratio_tokens:
            found["ratio/mean"] = self._ratio_sum / self._ratio_tokens
            found["ratio/clipped"] = self._ratio_clipped / self._ratio_tokens
        return found | self._fixed
