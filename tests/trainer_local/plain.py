"""Reference results for trainers: one sequence at a time through transformers, then Python's own numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from openclaw_rl.trainer_local.prefix.tree import Packed

torch.set_num_threads(1)


def log_probs(
    policy: Path, prompt: Sequence[int], response: Sequence[int], temperature: float = 1.0
) -> list[list[float]]:
    """Log-probabilities over the vocabulary from which each token of `response` is drawn after `prompt`."""
    model = AutoModelForCausalLM.from_pretrained(policy, dtype=torch.float32).eval()
    found = []
    for length in range(len(response)):
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([[*prompt, *response[:length]]])).logits[0, -1].double()
        found.append(normalised([float(value) / temperature for value in logits]))
    return found


def normalised(values: Sequence[float]) -> list[float]:
    """Log softmax."""
    top = max(values)
    total = top + math.log(math.fsum(math.exp(value - top) for value in values))
    return [value - total for value in values]


def mean(tables: Sequence[list[list[float]]]) -> list[list[float]]:
    """Normalised geometric mean of several distributions per token."""
    return [
        normalised([math.fsum(column) / len(tables) for column in zip(*rows, strict=True)])
        for rows in zip(*tables, strict=True)
    ]


def sampled(table: Sequence[Sequence[float]], response: Sequence[int]) -> list[float]:
    """The log-probability of each token of `response`."""
    return [row[token] for row, token in zip(table, response, strict=True)]


def divergence(policy: Sequence[float], target: Sequence[float]) -> float:
    """KL(policy ‖ target) of one token, from log-probabilities."""
    return math.fsum(math.exp(p) * (p - q) for p, q in zip(policy, target, strict=True))


def likeliest(row: Sequence[float], count: int) -> list[int]:
    """The `count` likeliest tokens, likeliest first."""
    return sorted(range(len(row)), key=lambda token: -row[token])[:count]


def ppo(advantage: float, ratio: float, low: float = 0.2, high: float = 0.28, cap: float = 2.0) -> float:
    """The clipped policy loss of one token."""
    ratio = min(ratio, cap)
    return max(-advantage * ratio, -advantage * min(max(ratio, 1 - low), 1 + high))


def mask(packed: Packed) -> Tensor:
    """Boolean `[N, N]`: whether the token of that row sees that of that column of a packed sequence."""
    seen = torch.zeros(packed.tokens, packed.tokens, dtype=torch.bool)
    for run in packed.runs:
        for begin, end in run.before:
            seen[run.begin : run.end, begin:end] = True
        seen[run.begin : run.end, run.begin : run.end].fill_(True).tril_()
    return seen
