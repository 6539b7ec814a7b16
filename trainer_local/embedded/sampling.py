"""From logits to a token, and its logprob.

The logprob is that of the filtered distribution: after penalties, temperature, top-k, top-p and min-p, renormalised
(SGLang reports it before the three filters, which the proxy leaves off by default). At temperature 0 it is the best
token's at temperature 1, and penalties count output tokens only, both as in SGLang.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence

import torch

from openclaw_rl.shared.engine.wire import Choice, SamplingParams


class TokenSampler:
    """The state of one answer's sampling: random numbers and counts of the tokens so far."""

    def __init__(self, params: SamplingParams) -> None:
        self.params = params
        seed = params.sampling_seed if params.sampling_seed is not None else params.seed
        self.random = random.Random(seed)
        self.greedy = params.temperature < 1e-5
        self.temperature = 1.0 if self.greedy else params.temperature
        self.filters = not self.greedy and (params.top_p < 1 or params.top_k > 0 or params.min_p > 0)
        self.penalises = params.frequency_penalty != 0 or params.presence_penalty != 0 or params.repetition_penalty != 1
        self.counts: Counter[int] = Counter()


def sample(
    logits: torch.Tensor,
    samplers: Sequence[TokenSampler],
    forbidden: Sequence[Sequence[int]],
    top_logprobs: Sequence[int],
) -> list[Choice | None]:
    """One token for each row of float32 `logits` `[rows, vocabulary]`, `None` for a row whose logits are not finite.

    `forbidden` are ids that a row must not take now (ends of answers before `min_new_tokens`), `top_logprobs` the
    numbers of alternatives to report.
    """
    if any(sampler.penalises for sampler in samplers) or any(forbidden):
        logits = logits.clone()
        for row, (sampler, barred) in enumerate(zip(samplers, forbidden, strict=True)):
            _penalise(logits[row], sampler)
            if barred:
                logits[row, list(barred)] = float("-inf")
    if any(sampler.temperature != 1 for sampler in samplers):
        logits = logits / torch.tensor([[sampler.temperature] for sampler in samplers], device=logits.device)
    logprobs = torch.log_softmax(logits, dim=-1)
    for row, sampler in enumerate(samplers):
        if sampler.filters:
            logprobs[row] = _filter(logprobs[row], sampler.params)
    cumulative = torch.cumsum(logprobs.exp(), dim=-1, dtype=torch.float64)
    total = cumulative[:, -1:]
    draws = torch.tensor([[sampler.random.random()] for sampler in samplers], dtype=torch.float64, device=logits.device)
    # The first entry above the draw: one of probability zero adds nothing to the sum and is never it.
    ids = torch.searchsorted(cumulative, draws * total, right=True)
    if any(sampler.greedy for sampler in samplers):
        greedy = torch.tensor([[sampler.greedy] for sampler in samplers], device=logits.device)
        ids = torch.where(greedy, logprobs.argmax(dim=-1, keepdim=True), ids)
    ids = ids.clamp_(max=logits.shape[1] - 1)
    chosen = logprobs.gather(1, ids).squeeze(1).tolist()
    most = max(top_logprobs)
    best = likeliest(logprobs, most) if most else [[] for _ in samplers]
    choices: list[Choice | None] = []
    for sampler, token, logprob, top, wanted in zip(
        samplers, ids.squeeze(1).tolist(), chosen, best, top_logprobs, strict=True
    ):
        if not math.isfinite(logprob):
            choices.append(None)
            continue
        if sampler.penalises:
            sampler.counts[token] += 1
        choices.append(Choice(token, logprob, top[:wanted]))
    return choices


def likeliest(logprobs: torch.Tensor, count: int) -> list[list[tuple[float, int]]]:
    """The `count` likeliest `(logprob, id)` of each row, best first; ids of probability zero are left out."""
    values, ids = logprobs.topk(min(count, logprobs.shape[-1]), dim=-1)
    rows = zip(values.tolist(), ids.tolist(), strict=True)
    return [[pair for pair in zip(*row, strict=True) if pair[0] != float("-inf")] for row in rows]


def _penalise(logits: torch.Tensor, sampler: TokenSampler) -> None:
    """Subtract frequency and presence penalties and scale by the repetition penalty, in place."""
    if not sampler.counts:
        return
    params = sampler.params
    ids = torch.tensor(list(sampler.counts), device=logits.device)
    counts = torch.tensor(list(sampler.counts.values()), device=logits.device, dtype=logits.dtype)
    taken = logits[ids] - params.frequency_penalty * counts - params.presence_penalty
    if params.repetition_penalty != 1:
        taken = torch.where(taken > 0, taken / params.repetition_penalty, taken * params.repetition_penalty)
    logits[ids] = taken


def _filter(logprobs: torch.Tensor, params: SamplingParams) -> torch.Tensor:
    """Keep the top-k, top-p and min-p tokens of `[vocabulary]` logprobs, renormalised; the others become -inf."""
    ordered, order = logprobs.sort(descending=True)
    probabilities = ordered.exp()
    keep = torch.ones_like(ordered, dtype=torch.bool)
    if params.top_k > 0:
        keep[params.top_k :] = False
    if params.top_p < 1:
        keep &= (probabilities.cumsum(0) - probabilities) < params.top_p
    if params.min_p > 0:
        keep &= probabilities >= params.min_p * probabilities[0]
    keep[0] = True
    kept = torch.where(keep, ordered, torch.full_like(ordered, float("-inf")))
    kept = kept - torch.logsumexp(kept, dim=0)
    return torch.empty_like(kept).scatter_(0, order, kept)
