"""The loss of a batch as passes of a cloud trainer: the terms that `shared.objective.terms` finds, with the means and
factors of the local trainer (`trainer_local.training.objective`), as far as what a provider computes and tells reaches.

- *Sampled tokens* (`binary`, `policy`): a loss of the provider's over the sampled tokens, `ppo` (ours, and exact),
  `cispo` or `importance_sampling`. Providers sum over places, so means, weights and factors are in the advantages. Our
  ratio is truncated for either sign: under `ppo` and `importance_sampling` places whose ratio is beyond `ratio_cap`
  are masked, which is the same gradient; under `cispo` the cap bounds the weight from above.
- *Distributions* (`distill`, `anchor`, `kl_base`, `entropy`): over K tokens and a tail
  (`trainer_cloud.training.targets`),
  worked out here from the policy's logprobs at those tokens. What is sent are the loss's derivatives by them, as
  weights of a cross entropy −Σ w·log π: its gradient is that of the loss.

Providers tell and compare logprobs at temperature 1, so a sample drawn at another one has no ratio here. It is
distilled where distributions are compared, and counts in `samples/left_out` where that takes a term from it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from msgspec.structs import replace
from numpy.typing import NDArray
from torch import Tensor

from openclaw_rl.shared.errors import TrainerError
from openclaw_rl.shared.objective import losses
from openclaw_rl.shared.objective.metrics import REPORTED, BatchFigures, factors
from openclaw_rl.shared.objective.terms import hints_of, signal, terms_of
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.trainer import Recipe
from openclaw_rl.trainer_cloud.provider import Datum, Pass, Sampler
from openclaw_rl.trainer_cloud.training import drift as drifts
from openclaw_rl.trainer_cloud.training.datum import row
from openclaw_rl.trainer_cloud.training.support import no_tops, refusal, wanted_tops
from openclaw_rl.trainer_cloud.training.targets import Asking, Target, own_tokens
from openclaw_rl.trainer_cloud.training.token_plan import POLICY, Plan, plan

POLICY_LOSSES = ("ppo", "cispo", "importance_sampling")
NOTHING = 0.002
"""Nats a token from a teacher that nobody could tell: where a teacher has hardly anything to teach, passes end here."""

LARGEST_PULL = 16.0
"""Bound of base/policy of the tail in the gradient of the anchor. The tail is moved through the weights of the K
tokens, that ratio times π each, which cancel but for a share of π_tail. A provider's rounding does not cancel, and the
ratio multiplies it too.
"""


class Objective:
    """The loss of one step's batch. `learn_targets` once, then for each update `asked` to the trainer's forward, and
    `passes` with what it said to its update. Raises `TrainerError` for what no provider can do.
    """

    def __init__(self, samples: Sequence[Sample], recipe: Recipe, *, loss: str) -> None:
        if loss not in POLICY_LOSSES:
            raise TrainerError(f"loss {loss} is not one that providers have: {', '.join(POLICY_LOSSES)}")
        _check(refusal(recipe))
        self._recipe = recipe
        self._loss = loss
        comparable = [_at_their_temperature(sample) for sample in samples]
        terms = [terms_of(sample, recipe) for sample in comparable]
        left_out = sum(found != terms_of(sample, recipe) for found, sample in zip(terms, samples, strict=True))
        taking = [index for index, found in enumerate(terms) if found]
        self._samples = [comparable[index] for index in taking]
        self._terms = [terms[index] for index in taking]
        self._rows = [row(sample) for sample in self._samples]
        self._factors = factors(recipe)
        self._figures = BatchFigures(comparable, terms, recipe)
        self._left_out = float(left_out)
        self._targets: list[Target] = []
        self._old: list[Tensor] = []
        self._asked: list[Datum] = []
        self._scored = 0

    @property
    def wanted_tops(self) -> int:
        """How many likeliest tokens at each position `learn_targets` would ask for, if the provider tells as many."""
        several = any(len(hints_of(sample, self._recipe)) > 1 for sample in self._samples)
        batch = self._recipe.topk if several or self._figures.tokens["anchor"] else 0
        return max(wanted_tops(self._recipe), batch)

    @property
    def needs_live(self) -> bool:
        """Whether `learn_targets` asks the policy before the step, be it as the teacher."""
        return any(
            own_tokens(sample, terms, self._recipe)
            or (self._recipe.teacher == "live" and hints_of(sample, self._recipe))
            for sample, terms in zip(self._samples, self._terms, strict=True)
        )

    @property
    def scored_tokens(self) -> int:
        """Tokens that `learn_targets` has sent to be scored."""
        return self._scored

    def plan(self, updates: int) -> Plan:
        """What a step of up to `updates` updates sends, before anything is sent."""
        return plan(self._samples, self._terms, self._recipe, updates)

    async def learn_targets(self, teacher: Sampler | None, base: Sampler, live: Sampler | None, *, tops: int) -> None:
        """Ask for everything that must be known before the step. `teacher` as the recipe has it and `live`, the policy
        before the step, may be `None` where they are the base. The provider tells `tops` likeliest tokens.
        """
        _check(refusal(self._recipe, tops))
        if self._figures.tokens["anchor"] and not tops:
            raise TrainerError(f"an anchor {no_tops()}: set anchors = 0; nothing was sent")
        asking = Asking(self._recipe, teacher=teacher, base=base, live=live, tops=tops)
        try:
            self._targets = await asking.targets(self._samples, self._terms)
        finally:
            self._scored = asking.tokens
        self._asked = [self._datum(index) for index in range(len(self._samples))]

    def asked(self) -> list[Datum]:
        """What the trainer's forward has to score before each update: each sample's sampled tokens `[T]`, or in the
        first of 1 + K columns `[T, 1 + K]`.
        """
        assert self._targets or not self._samples, "targets are learned first"
        return self._asked

    def passes(self, known: Sequence[NDArray[Any]]) -> list[Pass]:
        """The gradient passes of one update from the policy's logprobs of what was `asked`; none where nothing trains.
        The first call takes them for the policy before the step. Raises `TrainerError` if they or the loss are not
        finite.
        """
        now = [self._answer(index, values) for index, values in enumerate(known)]
        if len(now) != len(self._rows):
            raise TrainerError(f"the provider scored {len(now)} of {len(self._rows)} texts: no step was made")
        self._old = self._old or [values[:, 1:] for values in now]
        self._figures.start()
        sampled, chosen = [], []
        for index, values in enumerate(now):
            if self._terms[index] & POLICY:
                sampled.append(self._sampled(index, values[:, 0]))
            if self._terms[index] - POLICY:
                chosen.append(self._chosen(index, values[:, 1:]))
        broken = sorted(term for term, value in self._figures.losses.items() if not math.isfinite(value))
        if broken:
            raise TrainerError(f"loss of {', '.join(broken)} is not finite: nothing was sent to be trained")
        found = [
            Pass(self._loss, [one for one in sampled if np.any(one.advantages)], self._config()),
            Pass("cross_entropy", [one for one in chosen if np.any(one.weights)]),
        ]
        return [one for one in found if one.data]

    @property
    def settled(self) -> bool:
        """Whether another pass has nothing to teach, by the last `passes`: what is distilled sits (`early_stop`)."""
        distances = [
            losses.reverse_kl(target.untaught, target.taught)
            for target in self._targets
            if target.untaught is not None and target.taught is not None
        ]
        recipe = self._recipe
        if not recipe.early_stop or recipe.distillation not in ("full", "topk"):
            return False
        if not self._figures.tokens["distill"]:
            return not any(self._figures.tokens[term] for term in POLICY)
        distance = float(torch.cat(distances).mean()) if distances else 0.0
        return self._figures.losses["distill"] <= recipe.distill * max(recipe.early_stop * distance, NOTHING)

    def metrics(self) -> dict[str, float]:
        """Sums of the last update, as the local trainer's: see `BatchFigures.metrics`."""
        return {**self._figures.metrics(), "samples/left_out": self._left_out}

    def drift(self, before: Sequence[NDArray[Any]], after: Sequence[NDArray[Any]]) -> dict[str, float]:
        """`kl/parent` and `entropy/mean` (`trainer_cloud.training.drift`) from what forward said of `asked` before
        and after the step: over the answers that the policy sampled, or over all where there is none.
        """
        own = [
            index for index, sample in enumerate(self._samples) if sample.origin != "anchor" and not sample.no_ratio
        ] or list(range(len(self._samples)))

        def tokens(known: Sequence[NDArray[Any]]) -> NDArray[Any]:
            parts = [self._answer(index, known[index])[:, 0].numpy() for index in own]
            return np.concatenate(parts) if parts else np.zeros(0)

        return drifts.drift(tokens(before), tokens(after))

    def _datum(self, index: int) -> Datum:
        row, target = self._rows[index], self._targets[index]
        chosen = [ids for ids in (target.ids, target.plain_ids) if ids is not None]
        if not chosen:
            return Datum(row.ids, row.targets)
        columns = [row.answer(row.targets)[:, None], *chosen]
        return Datum(row.ids, row.candidates(np.concatenate(columns, axis=1)))

    def _answer(self, index: int, values: NDArray[Any]) -> Tensor:
        """The policy's logprobs `[R, 1 + K]`: of the sampled tokens, then of those that were chosen."""
        if values.shape != self._asked[index].targets.shape:
            raise TrainerError(
                f"the provider told logprobs of shape {values.shape} of {self._samples[index].sample_id}, not "
                f"{self._asked[index].targets.shape}: no step was made"
            )
        part = np.ascontiguousarray(self._rows[index].answer(values), dtype=np.float32)
        if not np.isfinite(part).all():
            raise TrainerError(
                f"the provider told logprobs of {self._samples[index].sample_id} that are not finite: no step was made"
            )
        return torch.from_numpy(part).reshape(len(part), -1)

    def _sampled(self, index: int, logprobs: Tensor) -> Datum:
        """The datum of a sample's policy loss: its advantages with everything that makes the mean."""
        recipe, sample, row = self._recipe, self._samples[index], self._rows[index]
        term = "policy" if "policy" in self._terms[index] else "binary"
        behavior = torch.tensor([float(value) for value in sample.logprobs])
        advantages = torch.full_like(behavior, signal(sample, recipe))
        if term == "policy":
            taught = self._targets[index].sampled
            rewards = recipe.binary * advantages
            differences = (
                torch.zeros_like(behavior)
                if taught is None
                else recipe.distill * losses.distillation_advantages(taught, behavior)
            )
            advantages = rewards + differences
            for name, alone in zip(REPORTED, (rewards, differences), strict=True):
                self._figures.reported[name] += float(
                    self._share(self._policy_loss(logprobs, behavior, alone), index, term)
                )
        ratio = losses.importance_ratio(logprobs, behavior, recipe.ratio_cap)
        self._figures.add(ratio.tolist(), advantages.tolist())
        self._figures.losses[term] += float(self._share(self._policy_loss(logprobs, behavior, advantages), index, term))
        if self._loss != "cispo":
            beyond = (logprobs - behavior).exp() > recipe.ratio_cap
            advantages = advantages.masked_fill(beyond, 0.0)
        scale = self._factors[term] * sample.weight / (self._figures.tokens[term] or 1.0)
        return Datum(
            row.ids,
            row.targets,
            logprobs=row.masked(behavior.numpy()),
            advantages=row.masked((advantages * scale).numpy()),
        )

    def _chosen(self, index: int, logprobs: Tensor) -> Datum:
        """The datum of a sample's other terms: minus the derivatives of their loss, as weights."""
        target, row, terms = self._targets[index], self._rows[index], self._terms[index]
        leaf = logprobs.detach().clone().requires_grad_()
        first = 0 if target.ids is None else target.ids.shape[1]
        taught, plain = leaf[:, :first], leaf[:, first:]
        total = leaf.new_zeros(())
        for term in sorted(terms - POLICY):
            if term == "distill":
                values = self._distill(taught, target, self._old[index][:, :first])
            elif term == "entropy":
                values = losses.entropy(losses.with_tail(plain))
            else:
                assert target.base is not None, "the base is asked for these terms"
                bins = losses.with_tail(plain)
                values = _anchored(target.base, bins) if term == "anchor" else losses.reverse_kl(bins, target.base)
            share = self._share(values, index, term)
            self._figures.losses[term] += float(share.detach())
            total = total + share
        (gradient,) = torch.autograd.grad(total, leaf)
        return Datum(row.ids, self._asked[index].targets[:, 1:], weights=row.masked(-gradient.numpy()))

    def _distill(self, logprobs: Tensor, target: Target, old: Tensor) -> Tensor:
        recipe = self._recipe
        assert target.taught is not None, "the teacher is asked for this term"
        if recipe.distillation != "select":
            return losses.reverse_kl(losses.with_tail(logprobs), target.taught)
        return losses.select_loss(
            logprobs,
            old,
            losses.select_advantages(old, target.taught[:, :-1], recipe.advantage_clip),
            clip_low=recipe.clip_low,
            clip_high=recipe.clip_high,
        )

    def _policy_loss(self, logprobs: Tensor, behavior: Tensor, advantages: Tensor) -> Tensor:
        """What the provider computes `[R]`, as a value."""
        recipe = self._recipe
        if self._loss == "ppo":
            return losses.clipped_policy_loss(
                logprobs,
                behavior,
                advantages,
                clip_low=recipe.clip_low,
                clip_high=recipe.clip_high,
                ratio_cap=recipe.ratio_cap,
            )
        ratio = losses.importance_ratio(logprobs, behavior, recipe.ratio_cap)
        if self._loss == "importance_sampling":
            return -advantages * ratio
        return -advantages * ratio.clamp(1.0 - recipe.clip_low, 1.0 + recipe.clip_high) * logprobs

    def _config(self) -> dict[str, float]:
        recipe = self._recipe
        if self._loss == "importance_sampling":
            return {}
        high = 1.0 + recipe.clip_high
        return {
            "clip_low_threshold": 1.0 - recipe.clip_low,
            "clip_high_threshold": min(high, recipe.ratio_cap) if self._loss == "cispo" else high,
        }

    def _share(self, values: Tensor, index: int, term: str) -> Tensor:
        weights = torch.full_like(values, self._samples[index].weight)
        return self._factors[term] * losses.token_mean(values, weights, self._figures.tokens[term])


def _anchored(base: Tensor, bins: Tensor) -> Tensor:
    """KL(base ‖ π) `[R]` over K tokens and a tail, `[R, K + 1]`; see `LARGEST_PULL` for its gradient."""
    bound = bins[:, -1:].detach() + math.log(LARGEST_PULL)
    bounded = losses.forward_kl(torch.cat([base[:, :-1], torch.minimum(base[:, -1:], bound)], dim=-1), bins)
    return losses.forward_kl(base, bins).detach() + bounded - bounded.detach()


def _at_their_temperature(sample: Sample) -> Sample:
    """The sample, without a ratio where its temperature is one that no provider computes at."""
    if sample.temperature == 1.0 or sample.no_ratio:
        return sample
    reason = f"sampled at temperature {sample.temperature:g}, and cloud providers compare logprobs at temperature 1"
    changed: Sample = replace(sample, no_ratio=reason)
    return changed


def _check(problem: str) -> None:
    if problem:
        raise TrainerError(f"{problem}; nothing was sent")
