"""The loss of a batch from the logits of the whole vocabulary, micro batch by micro batch (`shared.objective`)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from openclaw_rl.shared.errors import ConfigError, TrainerError
from openclaw_rl.shared.objective import losses
from openclaw_rl.shared.objective.batch_loss import BatchLoss, base_comparison, behavior_logprobs, per_token
from openclaw_rl.shared.objective.custom_loss import Loss, LossTokens, load_loss
from openclaw_rl.shared.objective.importance_ratio import GREEDY_BELOW
from openclaw_rl.shared.objective.terms import TERMS, terms_of
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.trainer import Recipe
from openclaw_rl.trainer_local.training.distributions import Distribution, in_same_bins
from openclaw_rl.trainer_local.training.targets import LocalTarget


class LocalObjective:
    """The loss of a batch; `sums` are the metrics of a pass."""

    def __init__(
        self, samples: Sequence[Sample], recipe: Recipe, device: torch.device, *, custom: Loss | None = None
    ) -> None:
        """`custom` is the recipe's custom loss, which is loaded if it is not given."""
        self._recipe = recipe
        self._device = device
        self._custom = custom or (_custom_loss(recipe.custom_loss) if recipe.custom_loss else None)
        self._terms = {sample.sample_id: terms_of(sample, recipe) for sample in samples}
        self._batch = BatchLoss(samples, [self.terms(sample) for sample in samples], recipe)
        self.sums = self._batch.metrics

    def of_part(self, samples: Sequence[Sample]) -> LocalObjective:
        """The loss of a part of the batch alone, with the same custom loss."""
        return LocalObjective(samples, self._recipe, self._device, custom=self._custom)

    def terms(self, sample: Sample) -> frozenset[str]:
        """The terms `sample` counts in."""
        return self._terms[sample.sample_id]

    def loss(self, samples: Sequence[Sample], targets: Sequence[LocalTarget | None], logits: Tensor) -> Tensor:
        """The share of `samples`, or of parts of their answers (`parts.part_of`), in the batch's loss, a scalar.

        `logits` `[N, V]` belong to these answers, one after the other; `targets` are what their terms need. A custom
        loss takes whole answers.
        """
        total = logits.new_zeros((), dtype=torch.float32)
        parts = logits.split([len(sample.response_ids) for sample in samples])
        for term in TERMS:
            chosen = [index for index, sample in enumerate(samples) if term in self.terms(sample)]
            if chosen:
                part = torch.cat([parts[index] for index in chosen]) if len(chosen) < len(samples) else logits
                known = [targets[index] or LocalTarget() for index in chosen]
                total = total + self._share(term, part, [samples[index] for index in chosen], known)
        return total

    def _share(self, term: str, logits: Tensor, samples: Sequence[Sample], targets: Sequence[LocalTarget]) -> Tensor:
        if term in ("binary", "policy"):
            logprobs = self._sampled(logits, samples)
            taught = [None if target.sampled is None else target.sampled.to(self._device) for target in targets]
            return self._batch.policy_share(term, logprobs, samples, taught)[0]
        if term == "imitate":
            values = self._imitation(logits, samples, targets)
        elif term == "custom":
            values = self._custom_values(logits, samples, targets)
        elif term == "distill":
            values = self._distillation(losses.log_softmax(logits), targets)
            if self._recipe.ratio_weighted:
                values = values * self._batch.ratio_weights(self._sampled(logits.detach(), samples), samples)
        else:
            log_probs, base = losses.log_softmax(logits), None
            if term != "entropy":
                log_probs, base = in_same_bins(log_probs, [_known(target.base) for target in targets])
            values = base_comparison(term, log_probs, base)
        return self._batch.share(term, values, samples)

    def _sampled(self, logits: Tensor, samples: Sequence[Sample]) -> Tensor:
        """The logprobs `[N]` of the sampled tokens at the temperature of the sampling."""
        temperatures = per_token([_divisor(sample) for sample in samples], samples, self._device)
        return losses.sampled_logprobs(losses.log_softmax(logits, temperatures), self._ids(samples))

    def _imitation(self, logits: Tensor, samples: Sequence[Sample], targets: Sequence[LocalTarget]) -> Tensor:
        """KL(teacher ‖ π) of answers that the teacher wrote; −log π of answers without a teacher."""
        values = []
        parts = losses.log_softmax(logits).split([len(sample.response_ids) for sample in samples])
        for sample, target, log_probs in zip(samples, targets, parts, strict=True):
            if target.teacher is None:
                values.append(-losses.sampled_logprobs(log_probs, self._ids([sample])))
            else:
                known, taught = in_same_bins(log_probs, [target.teacher])
                values.append(losses.forward_kl(taught, known))
        return torch.cat(values)

    def _distillation(self, log_probs: Tensor, targets: Sequence[LocalTarget]) -> Tensor:
        recipe = self._recipe
        if recipe.distillation == "select":
            chosen = log_probs.gather(-1, self._joined(targets, "ids"))
            support = self._joined(targets, "support") if recipe.select_from == "overlap" else None
            return self._batch.distillation(
                chosen, self._joined(targets, "known"), self._joined(targets, "old"), support
            )
        if recipe.distillation == "topk" and recipe.topk_from == "student":
            ids = log_probs.detach().topk(min(recipe.topk, log_probs.shape[-1]), dim=-1).indices
            known = self._joined(targets, "teacher").gather(-1, ids)
            return self._batch.distillation(losses.with_tail(log_probs.gather(-1, ids)), losses.with_tail(known))
        return self._batch.distillation(*in_same_bins(log_probs, [_known(target.teacher) for target in targets]))

    def _custom_values(self, logits: Tensor, samples: Sequence[Sample], targets: Sequence[LocalTarget]) -> Tensor:
        assert self._custom is not None, "the term is there only with a loss of the user's"
        base = self._joined(targets, "base")
        hinted = [target.teacher is not None for target in targets]
        pairs = zip(targets, base.split([len(sample.response_ids) for sample in samples]), strict=True)
        teacher = torch.cat([part if target.teacher is None else _whole(target.teacher) for target, part in pairs])
        rewards = [sample.reward or 0.0 for sample in samples]
        advantages = [
            reward if sample.advantage is None else sample.advantage
            for reward, sample in zip(rewards, samples, strict=True)
        ]

        def spread(values: Sequence[float]) -> Tensor:
            return per_token(values, samples, self._device)

        return self._custom(
            LossTokens(
                logits=logits,
                token_ids=self._ids(samples),
                temperatures=spread([_divisor(sample) for sample in samples]),
                behavior_logprobs=behavior_logprobs(samples, self._device),
                has_ratio=spread([float(not sample.no_ratio) for sample in samples]) > 0,
                base_log_probs=base,
                teacher_log_probs=teacher if any(hinted) else None,
                has_hint=spread([float(one) for one in hinted]) > 0,
                rewards=spread(rewards),
                advantages=spread(advantages),
                weights=spread([sample.weight for sample in samples]),
                sample_index=spread(list(range(len(samples)))).long(),
                recipe=self._recipe,
            )
        )

    def _joined(self, targets: Sequence[LocalTarget], name: str) -> Tensor:
        """One field of all `targets`, `[N, …]`; a term that asks has had it computed."""
        return torch.cat([getattr(target, name).to(self._device) for target in targets])

    def _ids(self, samples: Sequence[Sample]) -> Tensor:
        ids = [int(token) for sample in samples for token in sample.response_ids]
        return torch.tensor(ids, dtype=torch.long, device=self._device)


def _known(distribution: Distribution | None) -> Distribution:
    assert distribution is not None, "a term that compares has had its target computed"
    return distribution


def _whole(distribution: Distribution) -> Tensor:
    assert isinstance(distribution, Tensor), "a custom loss gets whole distributions"
    return distribution


def _divisor(sample: Sample) -> float:
    """The temperature of a sample, 1 where the best token was taken: engines report such logprobs at 1."""
    return 1.0 if sample.temperature < GREEDY_BELOW else sample.temperature


def _custom_loss(path: str) -> Loss:
    try:
        return load_loss(path)
    except ConfigError as error:
        raise TrainerError(f"custom_loss {path} cannot be used: {error}") from error
