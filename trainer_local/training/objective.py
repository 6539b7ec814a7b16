"""The loss of a batch: the terms that `shared.objective.terms` finds, each a mean over the tokens it applies to.

    total = distill · mean of the distillation    over samples with hinted prompts: reverse KL to the teacher over the
                                                  vocabulary, over K tokens and a tail, or clipped differences
          + binary  · mean clipped policy loss    over samples whose reward may train
          + anchor  · mean KL(base ‖ π)           over anchors
          + kl_base · mean KL(π ‖ base)           over the turns among the samples above
          − entropy · mean entropy of π           over the same

Under `distillation = "token"` one policy loss takes the place of the first two, its advantage binary · reward +
distill · (log π_T − log μ). A loss of the user's own takes the place of all. Means are over the tokens of the whole
batch, weighted by the samples' weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from openclaw_rl.shared.errors import ConfigError, TrainerError
from openclaw_rl.shared.objective import losses
from openclaw_rl.shared.objective.custom_loss import Loss, LossTokens, load_loss
from openclaw_rl.shared.objective.importance_ratio import GREEDY_BELOW
from openclaw_rl.shared.objective.metrics import REPORTED, BatchFigures, factors
from openclaw_rl.shared.objective.terms import signal, terms_of
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.trainer import Recipe
from openclaw_rl.trainer_local.training.targets import Target


class Objective:
    """The loss of a batch, micro batch by micro batch, and what it was made of."""

    def __init__(self, samples: Sequence[Sample], recipe: Recipe, device: torch.device) -> None:
        self._recipe = recipe
        self._device = device
        self._custom = _hook(recipe.custom_loss) if recipe.custom_loss else None
        self._terms = {sample.sample_id: terms_of(sample, recipe) for sample in samples}
        self._factors = factors(recipe)
        self._figures = BatchFigures(samples, [self.terms(sample) for sample in samples], recipe)

    def terms(self, sample: Sample) -> frozenset[str]:
        """The terms `sample` counts in."""
        return self._terms[sample.sample_id]

    def start_epoch(self) -> None:
        """Forget the sums of the epoch before."""
        self._figures.start()

    def loss(self, samples: Sequence[Sample], targets: Sequence[Target | None], logits: Tensor) -> Tensor:
        """The share of a micro batch in the batch's loss, a scalar.

        `logits` `[N, V]` belong to the answers of `samples`, one after the other; `targets` are what their terms need.
        """
        total = logits.new_zeros((), dtype=torch.float32)
        terms: dict[str, Callable[[Tensor, Sequence[Sample], Sequence[Target]], Tensor]] = {
            "distill": self._distill,
            "anchor": lambda part, _, known: losses.forward_kl(_all(known, "base"), losses.log_softmax(part)),
            "binary": self._binary,
            "policy": self._policy,
            "kl_base": lambda part, _, known: losses.reverse_kl(losses.log_softmax(part), _all(known, "base")),
            "entropy": lambda part, _, known: losses.entropy(losses.log_softmax(part)),
            "custom": self._own,
        }
        parts = logits.split([len(sample.response_ids) for sample in samples])
        for term, values in terms.items():
            chosen = [index for index, sample in enumerate(samples) if term in self.terms(sample)]
            if not chosen:
                continue
            part = torch.cat([parts[index] for index in chosen]) if len(chosen) < len(samples) else logits
            owners = [samples[index] for index in chosen]
            known = [targets[index] or Target() for index in chosen]
            share = self._share(self._factors[term], values(part, owners, known), owners, term)
            self._figures.losses[term] += float(share.detach())
            total = total + share
        return total

    def _distill(self, logits: Tensor, samples: Sequence[Sample], targets: Sequence[Target]) -> Tensor:
        recipe = self._recipe
        log_probs = losses.log_softmax(logits)
        if recipe.distillation == "select":
            old = _all(targets, "old")
            return losses.select_loss(
                log_probs.gather(-1, _all(targets, "ids")),
                old,
                losses.select_advantages(old, _all(targets, "known"), recipe.advantage_clip),
                clip_low=recipe.clip_low,
                clip_high=recipe.clip_high,
            )
        if recipe.distillation == "full":
            return losses.reverse_kl(log_probs, _all(targets, "teacher"))
        if recipe.topk_from == "teacher":
            ids, known = _all(targets, "ids"), _all(targets, "known")
        else:
            ids = log_probs.detach().topk(min(recipe.topk, log_probs.shape[-1]), dim=-1).indices
            known = _all(targets, "teacher").gather(-1, ids)
        return losses.reverse_kl(losses.with_tail(log_probs.gather(-1, ids)), losses.with_tail(known))

    def _binary(self, logits: Tensor, samples: Sequence[Sample], _: Sequence[Target]) -> Tensor:
        rewards = self._per_token([signal(sample, self._recipe) for sample in samples], samples)
        logprobs, behavior = self._sampled(logits, samples)
        return self._ppo(logprobs, behavior, rewards, count=True)

    def _policy(self, logits: Tensor, samples: Sequence[Sample], targets: Sequence[Target]) -> Tensor:
        """One policy loss over the sum of both advantages; a part that a sample has not is exactly 0."""
        recipe = self._recipe
        logprobs, behavior = self._sampled(logits, samples)
        rewards = recipe.binary * self._per_token([signal(sample, recipe) for sample in samples], samples)
        absent = torch.zeros_like(behavior).split([len(sample.response_ids) for sample in samples])
        teacher = torch.cat(
            [
                nothing if target.sampled is None else target.sampled
                for nothing, target in zip(absent, targets, strict=True)
            ]
        )
        differences = losses.distillation_advantages(teacher, behavior)
        hinted = self._per_token([float(target.sampled is not None) for target in targets], samples) > 0
        taught = recipe.distill * torch.where(hinted, differences, torch.zeros_like(differences))
        with torch.no_grad():
            for name, advantages in zip(REPORTED, (rewards, taught), strict=True):
                alone = self._ppo(logprobs, behavior, advantages, count=False)
                self._figures.reported[name] += float(self._share(1.0, alone, samples, "policy"))
        return self._ppo(logprobs, behavior, rewards + taught, count=True)

    def _ppo(self, logprobs: Tensor, behavior: Tensor, advantages: Tensor, *, count: bool) -> Tensor:
        recipe = self._recipe
        if count:
            ratio = losses.importance_ratio(logprobs.detach(), behavior, recipe.ratio_cap)
            self._figures.add(ratio.tolist(), advantages.tolist())
        return losses.clipped_policy_loss(
            logprobs,
            behavior,
            advantages,
            clip_low=recipe.clip_low,
            clip_high=recipe.clip_high,
            ratio_cap=recipe.ratio_cap,
        )

    def _own(self, logits: Tensor, samples: Sequence[Sample], targets: Sequence[Target]) -> Tensor:
        assert self._custom is not None, "the term is there only with a loss of the user's own"
        base = _all(targets, "base")
        hinted = [target.teacher is not None for target in targets]
        pairs = zip(targets, base.split([len(sample.response_ids) for sample in samples]), strict=True)
        teacher = torch.cat([part if target.teacher is None else target.teacher for target, part in pairs])
        rewards = [sample.reward or 0.0 for sample in samples]
        advantages = [
            reward if sample.advantage is None else sample.advantage
            for reward, sample in zip(rewards, samples, strict=True)
        ]
        return self._custom(
            LossTokens(
                logits=logits,
                token_ids=self._ids(samples),
                temperatures=self._per_token([_divisor(sample) for sample in samples], samples),
                behavior_logprobs=self._behavior(samples),
                has_ratio=self._per_token([float(not sample.no_ratio) for sample in samples], samples) > 0,
                base_log_probs=base,
                teacher_log_probs=teacher if any(hinted) else None,
                has_hint=self._per_token([float(one) for one in hinted], samples) > 0,
                rewards=self._per_token(rewards, samples),
                advantages=self._per_token(advantages, samples),
                weights=self._per_token([sample.weight for sample in samples], samples),
                sample_index=self._per_token(list(range(len(samples))), samples).long(),
                recipe=self._recipe,
            )
        )

    def _sampled(self, logits: Tensor, samples: Sequence[Sample]) -> tuple[Tensor, Tensor]:
        """Log π and log μ `[N]` of the sampled tokens, at the temperature of the sampling."""
        temperatures = self._per_token([sample.temperature for sample in samples], samples)
        logprobs = losses.sampled_logprobs(losses.log_softmax(logits, temperatures), self._ids(samples))
        return logprobs, self._behavior(samples)

    def _ids(self, samples: Sequence[Sample]) -> Tensor:
        ids = [int(token) for sample in samples for token in sample.response_ids]
        return torch.tensor(ids, dtype=torch.long, device=self._device)

    def _behavior(self, samples: Sequence[Sample]) -> Tensor:
        values = [value for sample in samples for value in sample.logprobs]
        return torch.tensor(values, dtype=torch.float32, device=self._device)

    def _share(self, factor: float, values: Tensor, samples: Sequence[Sample], term: str) -> Tensor:
        weights = self._per_token([sample.weight for sample in samples], samples)
        return factor * losses.token_mean(values, weights, self._figures.tokens[term])

    def _per_token(self, values: Sequence[float], samples: Sequence[Sample]) -> Tensor:
        repeats = torch.tensor([len(sample.response_ids) for sample in samples], device=self._device)
        return torch.tensor(values, dtype=torch.float32, device=self._device).repeat_interleave(repeats)

    def finite(self) -> bool:
        """Whether every term of this epoch is a finite number."""
        return all(math.isfinite(value) for value in self._figures.losses.values())

    def add_up(self, gather: Callable[[BatchFigures], list[BatchFigures]]) -> None:
        """Make this epoch's sums those of all processes that learn from a part of the batch; `gather` brings theirs."""
        parts = gather(self._figures)
        if len(parts) > 1:
            self._figures.take(parts)

    def metrics(self) -> dict[str, float]:
        """Sums of this epoch: see `BatchFigures.metrics`."""
        return self._figures.metrics()


def _divisor(sample: Sample) -> float:
    """The temperature of a sample, 1 where the best token was taken: engines report such logprobs at 1."""
    return 1.0 if sample.temperature < GREEDY_BELOW else sample.temperature


def _all(targets: Sequence[Target], name: str) -> Tensor:
    """One kind of knowledge of all `targets`, `[N, …]`; a term that asks has had it computed."""
    return torch.cat([getattr(target, name) for target in targets])


def _hook(path: str) -> Loss:
    try:
        return load_loss(path)
    except ConfigError as error:
        raise TrainerError(f"custom_loss {path} cannot be used: {error}") from error
