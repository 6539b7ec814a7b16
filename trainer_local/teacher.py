"""The frozen base as a teacher: full distributions over the answers of samples, under every hinted prompt they come
with.

Hinted prompts of one sample share all but their end, so the base computes what they share once (see
`trainer_local.forward`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from shared import losses
from shared.records import Sample
from trainer_local.batching import Row, row

TARGET_BYTES = 2 << 30
"""Targets held in memory at once; samples beyond it are taught in further slices, whose targets are computed anew
each epoch.
"""

RunBase = Callable[[Sequence[Row], Callable[[Sequence[int], Tensor], None]], None]
"""Puts rows through the base without gradients and calls back with row indices and their answers' logits `[N, V]`."""


def teacher_prompts(sample: Sample, terms: frozenset[str]) -> Sequence[Sequence[int]]:
    """The prompts the base sees for a sample that counts in `terms`: an anchor's own, the hinted ones, or none."""
    if "anchor" in terms:
        return [sample.prompt_ids]
    return sample.hinted_prompts if "distill" in terms else ()


def base_targets(
    samples: Sequence[Sample], prompts: Sequence[Sequence[Sequence[int]]], run_base: RunBase, temperature: float
) -> list[Tensor | None]:
    """For each sample the base's log-probabilities `[response length, V]` under its `prompts`, `None` where it has
    none.

    Several prompts make the normalised geometric mean (`losses.ensemble_target`); `temperature` divides the base's
    logits.
    """
    rows: list[Row] = []
    owners: list[int] = []
    for index, sample in enumerate(samples):
        for prompt in prompts[index]:
            rows.append(row(prompt, sample.response_ids))
            owners.append(index)
    sums: list[Tensor | None] = [None] * len(samples)

    def collect(indices: Sequence[int], logits: Tensor) -> None:
        lengths = [rows[index].response_length for index in indices]
        for index, part in zip(indices, losses.log_softmax(logits, temperature).split(lengths), strict=True):
            owner = owners[index]
            share = part / len(prompts[owner])
            known = sums[owner]
            sums[owner] = share if known is None else known + share

    run_base(rows, collect)
    return [None if total is None else torch.log_softmax(total, dim=-1) for total in sums]


def slices(lengths: Sequence[int], vocab_size: int, target_bytes: int = TARGET_BYTES) -> list[list[int]]:
    """Indices in runs whose targets (float32, full vocabulary) fit `target_bytes`; one alone may exceed it.

    `lengths` are the answers' tokens of each sample, 0 where it has no target.
    """
    runs: list[list[int]] = [[]]
    held = 0
    for index, length in enumerate(lengths):
        size = 4 * vocab_size * length
        if runs[-1] and held + size > target_bytes:
            runs.append([])
            held = 0
        runs[-1].append(index)
        held += size
    return runs
