"""The loss of a batch (`shared.objective`) as passes of a cloud trainer, from what a provider computes and reports.

- *Sampled tokens* (`binary`, `policy`): a loss of the provider's over the sampled tokens, `ppo` (ours, and exact),
  `cispo` or `importance_sampling`. Providers sum over places, so means, weights and factors are in the advantages. Our
  ratio is truncated for either sign: under `ppo` and `importance_sampling` places whose ratio is beyond `ratio_cap`
  are masked, which is the same gradient; under `cispo` the cap bounds the weight from above.
- *Distributions* (`distill`, `imitate`, `anchor`, `kl_base`, `entropy`): over K tokens and a tail
  (`trainer_cloud.training.targets`), worked out here from the policy's logprobs at those tokens. What is sent are the
  loss's derivatives by them, as weights of a cross entropy −Σ w·log π: its gradient is that of the loss. Imitation
  without a teacher's distribution is a cross entropy of the answer's tokens.

Providers report and compare logprobs at temperature 1, so a sample drawn at another one has no ratio here. It is
distilled where distributions are compared, and counts in `samples/left_out` where that takes a term from it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from msgspec.structs import replace
from numpy.typing import NDArray
from torch import Tensor

from openclaw_rl.shared.errors import TrainerError
from openclaw_rl.shared.objective import losses
from openclaw_rl.shared.objective.batch_loss import BatchLoss, base_comparison, behavior_logprobs
from openclaw_rl.shared.objective.early_stop import is_known, is_taught, loss_to_reach
from openclaw_rl.shared.objective.terms import hints_of, terms_of
from openclaw_rl.shared.records import PromptImage, Sample
from openclaw_rl.shared.trainer import Recipe
from openclaw_rl.trainer_cloud.budget.budget import Bill
from openclaw_rl.trainer_cloud.provider import POLICY_LOSSES, Datum, Pass, ScoreRequest
from openclaw_rl.trainer_cloud.training.scorer import Scorer
from openclaw_rl.trainer_cloud.training.support import no_top_logprobs, unsupported, wanted_top_logprobs
from openclaw_rl.trainer_cloud.training.targets import (
    POLICY,
    CloudTarget,
    TargetQueries,
    TokenPlan,
    images_under,
    own_tokens,
    target_recipe,
)

LARGEST_PULL = 16.0
"""Bound of base/policy or teacher/policy of the tail in the gradient of a forward KL. The tail is moved through the
weights of the K tokens, that ratio times π each, which cancel but for a share of π_tail. A provider's rounding does not
cancel, and the ratio multiplies it too.
"""


@dataclass(frozen=True)
class ShiftedText:
    """A prompt with its answer as cloud trainers take it: `ids` less the last token, `targets` `[T]` less the first,
    and the `images` that stand in the prompt.

    A text of n tokens has n − 1 places; place t is scored after `ids[: t + 1]`. The answer's first token stands at
    place `lead`, one less than the prompt is long, and what comes before is masked with 0.
    """

    ids: Sequence[int]
    targets: NDArray[np.int64]
    lead: int
    images: Sequence[PromptImage] = ()

    @classmethod
    def from_sample(cls, sample: Sample) -> ShiftedText:
        """The prompt and answer of a sample, from whatever sequences the record holds."""
        text = [int(token) for part in (sample.prompt_ids, sample.response_ids) for token in part]
        return cls(text[:-1], np.array(text[1:], dtype=np.int64), len(sample.prompt_ids) - 1, sample.images)

    def datum(self, targets: NDArray[np.int64], **more: NDArray[np.float32]) -> Datum:
        """The datum of these targets."""
        return Datum(self.ids, targets, lead=self.lead, images=self.images, **more)

    def answer(self, values: NDArray[Any]) -> NDArray[Any]:
        """The part of the answer, `[R, …]` of `[T, …]`."""
        return values[self.lead :]

    def padded(self, values: NDArray[Any], kind: type[np.generic]) -> NDArray[Any]:
        """Values of the answer, `[R]` or `[R, K]`, with 0 at the places of the prompt: what does not count, and what a
        sparse wire need not send.
        """
        padded = np.zeros((len(self.ids), *values.shape[1:]), dtype=kind)
        padded[self.lead :] = values
        return padded


class CloudObjective:
    """The loss of one step's batch. `learn_targets` once, then for each update `asked` to the trainer's forward, and
    `passes` with its answer to its update. Raises `TrainerError` for what no provider can do.
    """

    def __init__(self, samples: Sequence[Sample], recipe: Recipe, *, loss: str) -> None:
        if loss not in POLICY_LOSSES:
            raise TrainerError(f"loss {loss} is not one that providers have: {', '.join(POLICY_LOSSES)}")
        _check(unsupported(recipe))
        self._recipe = recipe
        self._loss = loss
        comparable = [_at_temperature_1(sample) for sample in samples]
        terms = [terms_of(sample, recipe) for sample in comparable]
        self._batch = BatchLoss(comparable, terms, recipe)
        self._left_out = sum(found != terms_of(sample, recipe) for found, sample in zip(terms, samples, strict=True))
        self._samples = [sample for sample, found in zip(comparable, terms, strict=True) if found]
        self._terms = [found for found in terms if found]
        self._texts = [ShiftedText.from_sample(sample) for sample in self._samples]
        self._targets: list[CloudTarget] = []
        self._old: list[Tensor] = []
        self._asked: list[Datum] = []
        self._distance: float | None = None
        self._sent: list[int] = []

    @property
    def wanted_top_logprobs(self) -> int:
        """The number of likeliest tokens at each position that `learn_targets` asks for if the provider reports as
        many.
        """
        several = any(len(self._hints(index)) > 1 for index in range(len(self._samples)))
        batch = self._recipe.topk if several or self._batch.metrics.sizes["anchor"] else 0
        return max(wanted_top_logprobs(self._recipe), batch)

    @property
    def needs_live(self) -> bool:
        """True if `learn_targets` asks the policy before the step, be it as the teacher."""
        return any(
            own_tokens(sample, self._terms[index], self._recipe)
            or (self._recipe.teacher == "live" and self._hints(index))
            for index, sample in enumerate(self._samples)
        )

    @property
    def longest(self) -> ScoreRequest:
        """The longest text that `learn_targets` may ask about, with as many likeliest tokens as it asks for."""
        texts = [
            (prompt, sample)
            for index, sample in enumerate(self._samples)
            for prompt in (sample.prompt_ids, *(self._hints(index) if sample.taught is None else ()))
        ]
        prompt, sample = max(texts, key=lambda text: len(text[0]) + len(text[1].response_ids))
        ids = [int(token) for part in (prompt, sample.response_ids) for token in part]
        return ScoreRequest(ids, len(prompt), self.wanted_top_logprobs, images=images_under(sample, prompt))

    def plan(self, updates: int) -> TokenPlan:
        """The tokens that a step of up to `updates` updates sends, before anything is sent."""
        return TokenPlan.for_step(self._samples, self._terms, self._recipe, updates)

    async def learn_targets(
        self, teacher: Scorer | None, base: Scorer, live: Scorer | None, *, top_logprobs: int, bill: Bill
    ) -> None:
        """Ask for everything that must be known before the step, on the bill. `teacher` as the recipe has it and
        `live`, the policy before the step, may be `None` where they are the base. The provider reports `top_logprobs`
        likeliest tokens.
        """
        _check(unsupported(self._recipe, top_logprobs))
        if self._batch.metrics.sizes["anchor"] and not top_logprobs:
            raise TrainerError(f"an anchor {no_top_logprobs()}: set anchors = 0; nothing was sent")
        queries = TargetQueries(
            self._recipe, teacher=teacher, base=base, live=live, top_logprobs=top_logprobs, bill=bill
        )
        self._targets = await queries.targets(self._samples, self._terms)
        self._asked = [self._datum(index) for index in range(len(self._samples))]
        distances = [
            losses.reverse_kl(target.untaught, target.taught)
            for target in self._targets
            if target.untaught is not None and target.taught is not None
        ]
        self._distance = float(torch.cat(distances).mean()) if distances else None

    def at_sampling(self) -> list[NDArray[np.float32]] | None:
        """The logprobs of what was `asked` as they were when the answers were sampled; `None` where more is asked than
        the sampled tokens. If the policy before the step is the one that sampled them, they are its logprobs.
        """
        if any(terms - POLICY for terms in self._terms):
            return None
        return [
            text.padded(np.asarray(sample.logprobs, dtype=np.float32), np.float32)
            for text, sample in zip(self._texts, self._samples, strict=True)
        ]

    def asked(self) -> list[Datum]:
        """The data that the trainer's forward has to score before each update: each sample's sampled tokens `[T]`, or
        in the first of 1 + K columns `[T, 1 + K]`.
        """
        assert self._targets or not self._samples, "targets are learned first"
        return self._asked

    def passes(self, known: Sequence[NDArray[Any]]) -> list[Pass]:
        """The gradient passes of one update from the policy's logprobs of what was `asked`; none where nothing trains.
        The first call takes them for the policy before the step. Raises `TrainerError` if they or the loss are not
        finite.
        """
        now = [self._answer(index, values) for index, values in enumerate(known)]
        self._sent = []
        if len(now) != len(self._texts):
            raise TrainerError(f"the provider scored {len(now)} of {len(self._texts)} texts: no step was made")
        self._old = self._old or [values[:, 1:] for values in now]
        metrics = self._batch.metrics
        metrics.start_pass()
        sampled, chosen = [], []
        for index, values in enumerate(now):
            if self._terms[index] & POLICY:
                sampled.append(self._sampled(index, values[:, 0]))
            if self._terms[index] - POLICY:
                chosen.append(self._chosen(index, values))
        broken = sorted(term for term, value in metrics.losses.items() if not math.isfinite(value))
        if broken:
            raise TrainerError(f"loss of {', '.join(broken)} is not finite: nothing was sent to be trained")
        found = [
            Pass(self._loss, [one for one in sampled if np.any(one.advantages)], self._config()),
            Pass("cross_entropy", [one for one in chosen if np.any(one.weights)]),
        ]
        places = [index for index, terms in enumerate(self._terms) if terms & POLICY]
        self._sent = [place for place, one in zip(places, sampled, strict=True) if np.any(one.advantages)]
        return [one for one in found if one.data]

    def corrected(self, known: Sequence[NDArray[Any]], before: Sequence[Sequence[NDArray[Any]]]) -> list[NDArray[Any]]:
        """`known`, for which logprobs `at_sampling` were taken, with those of the policy before the step in their place
        where the gradient passes of the last `passes` report them.
        """
        found = list(known)
        for place, values in zip(self._sent, before[0] if before else (), strict=bool(before)):
            found[place] = values
        return found

    @property
    def is_taught(self) -> bool:
        """True if another pass has nothing to teach, by the last `passes` (`shared.objective.early_stop`)."""
        return is_taught(self._batch.metrics, loss_to_reach(self._recipe, self._distance))

    @property
    def is_known(self) -> bool:
        """True if not even the first pass has anything to teach, by the last `passes`."""
        return is_known([self._batch.metrics], self._recipe, self._distance)

    def metrics(self) -> dict[str, float]:
        """Sums of the last update, as the local trainer's: see `BatchMetrics.values`."""
        return {**self._batch.metrics.values(), "samples/left_out": float(self._left_out)}

    def drift(self, before: Sequence[NDArray[Any]], after: Sequence[NDArray[Any]]) -> dict[str, float]:
        """`kl/parent` and `entropy/mean` (`drift`) from the forward passes over `asked` before and after the step: over
        the answers that the policy sampled, or over all where there is none.
        """
        own = [
            index for index, sample in enumerate(self._samples) if sample.origin != "anchor" and not sample.no_ratio
        ] or list(range(len(self._samples)))

        def tokens(known: Sequence[NDArray[Any]]) -> NDArray[Any]:
            parts = [self._answer(index, known[index])[:, 0].numpy() for index in own]
            return np.concatenate(parts) if parts else np.zeros(0)

        return drift(tokens(before), tokens(after))

    def _hints(self, index: int) -> Sequence[Sequence[int]]:
        """The prompts under which the teacher sees a sample's answer."""
        return hints_of(self._samples[index], target_recipe(self._terms[index], self._recipe))

    def _datum(self, index: int) -> Datum:
        text, target = self._texts[index], self._targets[index]
        chosen = [ids for ids in (target.ids, target.plain_ids) if ids is not None]
        if not chosen:
            return text.datum(text.targets)
        columns = [text.answer(text.targets)[:, None], *chosen]
        return text.datum(text.padded(np.concatenate(columns, axis=1), np.int64))

    def _answer(self, index: int, values: NDArray[Any]) -> Tensor:
        """The policy's logprobs `[R, 1 + K]`: of the sampled tokens, then of those that were chosen."""
        wanted, sample = self._asked[index].targets.shape, self._samples[index].sample_id
        if values.shape != wanted:
            raise TrainerError(
                f"the provider gave logprobs of shape {values.shape} of {sample}, not {wanted}: no step was made"
            )
        part = np.ascontiguousarray(self._texts[index].answer(values), dtype=np.float32)
        if not np.isfinite(part).all():
            raise TrainerError(f"the provider gave logprobs of {sample} that are not finite: no step was made")
        return torch.from_numpy(part).reshape(len(part), -1)

    def _sampled(self, index: int, logprobs: Tensor) -> Datum:
        """The datum of a sample's policy loss: its advantages with everything that makes the mean."""
        sample, text = self._samples[index], self._texts[index]
        term = "policy" if "policy" in self._terms[index] else "binary"
        _, advantages = self._batch.policy_share(
            term, logprobs, [sample], [self._targets[index].sampled], self._policy_loss
        )
        behavior = behavior_logprobs([sample], logprobs.device)
        if self._loss != "cispo":
            advantages = advantages.masked_fill((logprobs - behavior).exp() > self._recipe.ratio_cap, 0.0)
        weighted = advantages * self._batch.token_weight(term, sample)
        return text.datum(
            text.targets,
            logprobs=text.padded(behavior.numpy(), np.float32),
            advantages=text.padded(weighted.numpy(), np.float32),
        )

    def _chosen(self, index: int, logprobs: Tensor) -> Datum:
        """The datum of a sample's other terms: minus the derivatives of their loss by `logprobs` `[R, 1 + K]`, as
        weights. The sampled tokens in the first column are sent only where nothing else is compared.
        """
        target, text, terms = self._targets[index], self._texts[index], self._terms[index]
        leaf = logprobs.detach().clone().requires_grad_()
        alone = leaf.shape[1] == 1
        first = 1 if target.ids is None else 1 + target.ids.shape[1]
        total = leaf.new_zeros(())
        for term in sorted(terms - POLICY):
            if term == "distill":
                values = self._distillation(leaf[:, 1:first], target, self._old[index][:, : first - 1])
                if self._recipe.ratio_weighted:
                    values = values * self._batch.ratio_weights(leaf[:, 0], [self._samples[index]])
            elif term == "imitate":
                values = (
                    -leaf[:, 0] if alone else _bounded_forward_kl(target.taught, losses.with_tail(leaf[:, 1:first]))
                )
            else:
                bins = losses.with_tail(leaf[:, first:])
                values = (
                    _bounded_forward_kl(target.base, bins)
                    if term == "anchor"
                    else base_comparison(term, bins, target.base)
                )
            total = total + self._batch.share(term, values, [self._samples[index]])
        (gradient,) = torch.autograd.grad(total, leaf)
        sent = 0 if alone else slice(1, None)
        targets = self._asked[index].targets
        weights = text.padded(-gradient.numpy()[:, sent], np.float32)
        return text.datum(targets if alone else targets[:, 1:], weights=weights)

    def _distillation(self, logprobs: Tensor, target: CloudTarget, old: Tensor) -> Tensor:
        assert target.taught is not None, "the teacher is asked for this term"
        if self._recipe.distillation == "select":
            return self._batch.distillation(logprobs, target.taught[:, :-1], old, target.support)
        return self._batch.distillation(losses.with_tail(logprobs), target.taught)

    def _policy_loss(self, logprobs: Tensor, behavior: Tensor, advantages: Tensor) -> Tensor:
        """The provider's loss `[R]`, as a value."""
        recipe = self._recipe
        if self._loss == "ppo":
            return self._batch.clipped_policy_loss(logprobs, behavior, advantages)
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


def drift(before: NDArray[Any], after: NDArray[Any]) -> dict[str, float]:
    """The step's distance `kl/parent` and `entropy/mean` from log p `before` and log q `after` `[N]` of tokens that
    were sampled by the policy before the step; both 0 without tokens.

    With r = q/p, `kl/parent` is the mean of r − 1 − log r: it estimates KL(before ‖ after) without bias, and is no less
    than 0 at every token (Schulman, "Approximating KL Divergence", joschu.net/blog/kl-approx.html, 2020, k3).
    The other direction cannot be seen from here: a token that only the new policy likes was not sampled.
    `entropy/mean` is −Σ r·log q / Σ r, a self-normalised importance estimate of the new policy's entropy, and no less
    than 0 either.
    """
    if not before.size:
        return {"kl/parent": 0.0, "entropy/mean": 0.0}
    old, new = before.astype(np.float64), np.minimum(after.astype(np.float64), 0.0)
    logs = new - np.minimum(old, 0.0)
    # Rounding can take the difference of two nearly equal numbers below 0.
    distances = np.maximum(np.expm1(logs) - logs, 0.0)
    shares = np.exp(logs - logs.max())
    return {"kl/parent": float(distances.mean()), "entropy/mean": float(-(shares * new).sum() / shares.sum())}


def _bounded_forward_kl(known: Tensor | None, bins: Tensor) -> Tensor:
    """KL(known ‖ π) `[R]` over K tokens and a tail, both `[R, K + 1]`; see `LARGEST_PULL` for its gradient."""
    assert known is not None, "the base or the teacher is asked for this term"
    bound = bins[:, -1:].detach() + math.log(LARGEST_PULL)
    bounded = losses.forward_kl(torch.cat([known[:, :-1], torch.minimum(known[:, -1:], bound)], dim=-1), bins)
    return losses.forward_kl(known, bins).detach() + bounded - bounded.detach()


def _at_temperature_1(sample: Sample) -> Sample:
    """The sample, without a ratio where its temperature is one that no provider computes at."""
    if sample.temperature == 1.0 or sample.no_ratio:
        return sample
    reason = f"sampled at temperature {sample.temperature:g}, and cloud providers compare logprobs at temperature 1"
    changed: Sample = replace(sample, no_ratio=reason)
    return changed


def _check(problem: str) -> None:
    if problem:
        raise TrainerError(f"{problem}; nothing was sent")
