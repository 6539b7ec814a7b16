"""Losses as pure functions of tensors: one implementation for every trainer. The only module of this room that
imports torch.

Conventions: N response tokens of any number of sequences stand one after the other in one dimension, V is the
vocabulary, natural logarithms throughout. Row t of a `[N, V]` tensor is the distribution *from which* token t of the
response is drawn, so the row of an answer's first token comes from the last prompt position. Every function returns
one value per token; `token_mean` makes the scalar.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def log_softmax(logits: Tensor, temperature: float | Tensor = 1.0) -> Tensor:
    """Log-probabilities `[N, V]` (at least float32) of `logits` `[N, V]` divided by `temperature` (a number, or
    `[N]`, all > 0).
    """
    precise = logits if logits.dtype == torch.float64 else logits.float()
    if isinstance(temperature, Tensor):
        precise = precise / temperature.to(precise).unsqueeze(-1)
    elif temperature != 1.0:
        precise = precise / temperature
    return torch.log_softmax(precise, dim=-1)


def sampled_logprobs(log_probs: Tensor, token_ids: Tensor) -> Tensor:
    """Log-probability `[N]` of each sampled token `token_ids` `[N]` under `log_probs` `[N, V]`."""
    return log_probs.gather(-1, token_ids.unsqueeze(-1)).squeeze(-1)


def ensemble_target(log_probs: Tensor) -> Tensor:
    """Normalised geometric mean `[N, V]` of the H distributions `log_probs` `[H, N, V]`: log softmax of the mean log-
    probability.

    With H = 1 this is the distribution itself. Among all q it minimises mean_h KL(q ‖ p_h) (Hinton 1999, products of
    experts with equal exponents 1/H).
    """
    return torch.log_softmax(log_probs.mean(dim=0), dim=-1)


def reverse_kl(log_probs: Tensor, target_log_probs: Tensor) -> Tensor:
    """KL(π ‖ target) `[N]` over the full vocabulary: Σ_v π(v)·(log π(v) − log target(v)), both `[N, V]`; the target
    gets no gradient.

    Source: on-policy distillation (Agarwal et al., arXiv 2306.13649, reverse KL). The gradient with respect to the
    logits is π·(log π − log target − KL).
    """
    return _divergence(log_probs, target_log_probs.detach())


def jensen_shannon(log_probs: Tensor, target_log_probs: Tensor) -> Tensor:
    """½·KL(π ‖ m) + ½·KL(target ‖ m) `[N]` with m = ½·π + ½·target, both `[N, V]`; the target gets no gradient. At most
    log 2, which bounds the pull of a token that one of them all but excludes.

    Source: SDPO (arXiv 2601.20802) with α = ½; generalized Jensen-Shannon divergence in on-policy distillation (arXiv
    2306.13649). The gradient with respect to the logits is ½·π·(log π − log m − KL(π ‖ m)).
    """
    target = target_log_probs.detach()
    middle = torch.logaddexp(log_probs, target) - math.log(2.0)
    return 0.5 * (_divergence(log_probs, middle) + _divergence(target, middle))


def forward_kl(base_log_probs: Tensor, log_probs: Tensor) -> Tensor:
    """KL(base ‖ π) `[N]` over the full vocabulary, both `[N, V]`; the base gets no gradient: π − base is the gradient
    of the logits.
    """
    return _divergence(base_log_probs.detach(), log_probs)


def entropy(log_probs: Tensor) -> Tensor:
    """−Σ_v π(v)·log π(v) `[N]` of the distributions `log_probs` `[N, V]`, in nats."""
    return -(log_probs.exp() * log_probs).sum(dim=-1)


def with_tail(chosen_log_probs: Tensor) -> Tensor:
    """`[N, K + 1]`: the K chosen tokens' log-probabilities `[N, K]` and that of all other tokens together,
    log(1 − Σ_k p_k), never below the smallest share that the precision can tell from 0 (there it has no gradient).

    Source: the tail bin of SDFT (arXiv 2601.19897) and SDPO (arXiv 2601.20802). With both distributions in the same
    bins `reverse_kl` compares them, a lower bound of the divergence over the vocabulary.
    """
    chosen = torch.logsumexp(chosen_log_probs, dim=-1, keepdim=True)
    floor = torch.finfo(chosen.dtype).eps
    return torch.cat([chosen_log_probs, torch.log(-torch.expm1(chosen.clamp(max=-floor)))], dim=-1)


def overlap(own: Tensor, others: Tensor) -> Tensor:
    """The number of token ids `own` `[N, k]` that are among `others` `[N, k]`, `[N]`; the ids of a row are distinct.

    Source: the `overlap` selection of hints in the second OpenClaw-RL paper, per token.
    """
    return (own.unsqueeze(-1) == others.unsqueeze(-2)).sum(dim=(-2, -1))


def distillation_advantages(teacher_logprobs: Tensor, behavior_logprobs: Tensor, bound: float = 0.0) -> Tensor:
    """log π_T(a_t | hinted prompt) − log μ(a_t | prompt) `[N]`, both `[N]`, at the temperature of the sampling; clipped
    to ±`bound` unless that is 0.

    Source: on-policy distillation under hindsight hints, OpenClaw-RL (arXiv 2603.10165).
    """
    return _clipped(teacher_logprobs - behavior_logprobs, bound)


def contained(ids: Tensor, others: Tensor) -> Tensor:
    """The mask `[N, k]` of the `ids` `[N, k]` that are among the `others` `[N, m]` of their row."""
    return (ids.unsqueeze(-1) == others.unsqueeze(-2)).any(dim=-1)


def select_advantages(
    old_log_probs: Tensor, teacher_log_probs: Tensor, bound: float, support: Tensor | None = None
) -> Tensor:
    """A_v = clip(ℓ_T − ℓ_old, ±bound)·softmax(ℓ_old) `[N, k]` over the selected tokens: all k, or those in `support`
    `[N, k]`. All others have 0, and so has every token of a row without any. A `bound` of 0 clips nothing.

    Source: the hybrid of the second OpenClaw-RL paper, with its support sets: the likeliest tokens of the policy before
    the step, of the teacher, or of both.
    """
    differences = _clipped(teacher_log_probs - old_log_probs, bound)
    if support is None:
        return differences * torch.softmax(old_log_probs, dim=-1)
    shares = torch.softmax(old_log_probs.masked_fill(~support, -torch.inf), dim=-1)
    return torch.where(support, differences * shares, torch.zeros_like(differences))


def select_loss(
    log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, *, clip_low: float, clip_high: float
) -> Tensor:
    """Σ_v max(−A_v·ρ_v, −A_v·clip(ρ_v, 1 − clip_low, 1 + clip_high)) `[N]` with ρ_v = exp(ℓ − ℓ_old), all `[N, k]`.

    Source: the second OpenClaw-RL paper's hybrid. The ratio is not truncated: the published formula has no cap.
    """
    ratio = (log_probs - old_log_probs.detach()).exp()
    weights = -advantages.detach()
    clipped = ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    return torch.maximum(weights * ratio, weights * clipped).sum(dim=-1)


def importance_ratio(logprobs: Tensor, behavior_logprobs: Tensor, cap: float) -> Tensor:
    """min(exp(log π − log μ), cap) `[N]`: how much likelier π makes each sampled token than the distribution that
    sampled it.

    `logprobs` must be at the temperature of the sampling, `behavior_logprobs` those that were really sampled with.
    Beyond `cap` the ratio is a constant, so the token gives no gradient (truncated importance sampling, Ionides
    2008).
    """
    return (logprobs - behavior_logprobs.detach()).exp().clamp(max=cap)


def clipped_policy_loss(
    logprobs: Tensor,
    behavior_logprobs: Tensor,
    advantages: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    ratio_cap: float,
) -> Tensor:
    """max(−A·ρ, −A·clip(ρ, 1 − clip_low, 1 + clip_high)) `[N]` with ρ from `importance_ratio`; all inputs `[N]`.

    Source: PPO (arXiv 1707.06347, eq. 7) with the two clip widths of DAPO (arXiv 2503.14476) and a ratio that is
    truncated for negative advantages too (dual clip, arXiv 1912.09729).
    """
    ratio = importance_ratio(logprobs, behavior_logprobs, ratio_cap)
    clipped = ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    weights = -advantages.detach()
    return torch.maximum(weights * ratio, weights * clipped)


def token_mean(values: Tensor, weights: Tensor, total: Tensor | float | None = None) -> Tensor:
    """Σ values·weights / total, a scalar; `values` and `weights` `[N]`, a weight of 0 masks a token.

    `total` is the weight of the whole batch when `values` is one micro batch of it (then the micro batches add up to
    the batch's mean); default: the sum of `weights`. An empty batch gives exactly 0 with a gradient of 0.
    """
    masked = torch.where(weights != 0, values, torch.zeros_like(values)) * weights
    divisor = weights.sum() if total is None else torch.as_tensor(total, dtype=masked.dtype, device=masked.device)
    return masked.sum() / divisor.clamp(min=torch.finfo(masked.dtype).tiny)


def _clipped(values: Tensor, bound: float) -> Tensor:
    return values.clamp(-bound, bound) if bound else values


def _divergence(one: Tensor, other: Tensor) -> Tensor:
    """KL(one ‖ other) `[N]` of `[N, V]`; both get a gradient."""
    return (one.exp() * (one - other)).sum(dim=-1)
