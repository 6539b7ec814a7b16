"""Rows that share prefixes in many ways, and what a model says of each alone, with gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from openclaw_rl.shared.objective import losses
from openclaw_rl.trainer_local.models.forward import run_rows
from openclaw_rl.trainer_local.prefix.capability import Sharing
from openclaw_rl.trainer_local.training.batching import Row, row
from openclaw_rl.trainer_local.training.slices import Slice, differentiating

torch.set_num_threads(1)
PREFIX = [2 + index % 40 for index in range(200)]
SIDE = [2 + index % 37 for index in range(90)]
ROWS = [
    row([*PREFIX, 5, 6], [7, 8, 9]),
    row([*PREFIX, 5, 9, 11, 13], [7]),
    row([*PREFIX], [3, 4]),
    row([4], [5, 6]),
    row([9, 8, 7, 6, 5], [4, 3, 2, 9, 12, 13]),
]


def conversation(turns: int, *, floating: bool) -> list[Row]:
    """An agent's turns after a long system prompt; with `floating`, text before each answer that does not stay."""
    history = list(PREFIX)
    rows = []
    for turn in range(turns):
        history += [4 + turn, 5, 6 + turn]
        rows.append(row([*history, *([30 + turn, 31] if floating else [])], [7 + turn, 8, 9 + turn]))
        history += [7 + turn, 8, 9 + turn]
    return rows


SHAPES = {
    "one fork": ROWS,
    "floating context": conversation(6, floating=True),
    "chain": conversation(6, floating=False),
    "forks of forks": [
        row([*PREFIX, *SIDE[: 30 * deep], side, 3], [4, 5]) for deep in (0, 1, 2, 3) for side in (41, 42, 43)
    ],
    "copies, and answers within prompts": [
        row(PREFIX, [3, 4, 5]),
        row(PREFIX, [3, 4, 5]),
        row([*PREFIX, 3, 4], [5, 6]),
        row(PREFIX[:50], PREFIX[50:60]),
        row([*PREFIX, 9], [3]),
    ],
    "answers that begin alike": [row(PREFIX, [3, 4, 5, 6]), row(PREFIX, [3, 4, 7, 8, 9]), row(PREFIX, [3, 9])],
    "hinted prompts of one sample": [row([*PREFIX, *hint], [7, 8, 9]) for hint in ([], [11, 12], [11, 13], [14])],
    "a long side branch": [row(PREFIX, SIDE), row([*PREFIX[:150], *SIDE, *SIDE], [5, 6]), row(PREFIX[:150], [9, 9])],
}


def drawn_rows() -> st.SearchStrategy[list[Row]]:
    """Rows over two tokens, so that forks, chains, forks of forks and copies are common."""
    tokens = st.lists(st.integers(2, 3), max_size=7)
    one = st.tuples(tokens, st.integers(0, 3), tokens).map(
        lambda parts: row([5] * (1 + 2 * parts[1]) + parts[0], parts[2])
    )
    return st.lists(one, max_size=14)


Result = tuple[list[Tensor], dict[str, Tensor]]
"""Log-probabilities over the vocabulary of each row's answer, and the gradients of their sum at its tokens."""


def one_by_one(model: Any, rows: Sequence[Row]) -> Result:
    """The plain way: whole sequence, no padding, no cache."""
    model.zero_grad()
    found = []
    for line in rows:
        logits = model(input_ids=torch.tensor([line.ids], device=model.device)).logits[0]
        log_probs = losses.log_softmax(logits[line.start - 1 : line.length - 1])
        if line.response_length:
            weights = torch.arange(1.0, line.response_length + 1, device=model.device)
            ids = torch.tensor(line.ids[line.start :], device=model.device)
            (losses.sampled_logprobs(log_probs, ids) * weights).sum().backward()
        found.append(log_probs.detach())
    return found, _gradients(model)


def together(model: Any, rows: Sequence[Row], *, budget: int, share: Sharing) -> Result:
    """The same by `run_rows`."""
    found: dict[int, list[Tensor]] = {}
    model.zero_grad()

    def use(slices: Sequence[Slice], logits: Tensor) -> Tensor:
        log_probs = losses.log_softmax(logits)
        lengths = [one.tokens for one in slices]
        ids = [token for one in slices for token in rows[one.row].ids[rows[one.row].start :][one.start : one.end]]
        weights = torch.cat([torch.arange(one.start + 1.0, one.end + 1.0) for one in slices]).to(logits.device)
        for one, part in zip(slices, log_probs.detach().split(lengths), strict=True):
            found.setdefault(one.row, []).append(part)
        return (losses.sampled_logprobs(log_probs, torch.tensor(ids, device=logits.device)) * weights).sum()

    run_rows(
        model,
        rows,
        differentiating(use),
        micro_batch_tokens=budget,
        share=share,
        backward=True,
    )
    return [torch.cat(found[index]) for index, line in enumerate(rows) if line.response_length], _gradients(model)


def assert_same(found: Result, plain: Result, *, rounding: float = 1e-6) -> None:
    """But for rounding, relative to the largest gradient of all (norms round to float32 inside)."""
    known = [part for part in plain[0] if len(part)]
    assert len(found[0]) == len(known)
    for part, reference in zip(found[0], known, strict=True):
        assert torch.allclose(part, reference, atol=rounding)
    assert found[1].keys() == plain[1].keys()
    largest = max((float(part.abs().max()) for part in plain[1].values()), default=0.0)
    for name, gradient in found[1].items():
        assert float((gradient - plain[1][name]).abs().max()) <= rounding * max(1.0, largest), name


def _gradients(model: Any) -> dict[str, Tensor]:
    return {name: part.grad.clone() for name, part in model.named_parameters() if part.grad is not None}
