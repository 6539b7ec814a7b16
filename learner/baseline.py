"""Subtract a baseline from rewards before they train. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from openclaw_rl.shared.records import PolicyVersion, Sample

MEMORY = 0.9
"""Decay of the running mean at each version."""


def mean_reward(versions: Sequence[PolicyVersion]) -> float | None:
    """The running mean of the rewards of all versions that were not rejected (oldest first); `None` before the first.

    It comes from the journal, so a restart changes nothing.
    """
    running: float | None = None
    for version in versions:
        mean = version.metrics.get("reward/mean")
        if mean is not None and version.state != "rejected" and version.sample_ids:
            running = mean if running is None else MEMORY * running + (1.0 - MEMORY) * mean
    return running


def subtract_baseline(
    samples: Sequence[Sample],
    kind: Literal["none", "batch", "running"],
    mean_so_far: float | None,
    trains: Callable[[Sample], bool],
) -> list[Sample]:
    """The samples; those whose reward may train (`trains`) get an `advantage` = reward − baseline.

    The baseline is the mean of those rewards in this step (`batch`), or `mean_so_far` (`running`; 0 if `None`). Source:
    REINFORCE with a baseline (Williams 1992).
    """
    rewards = [sample.reward for sample in samples if sample.reward is not None and trains(sample)]
    if kind == "none" or not rewards:
        return list(samples)
    baseline = math.fsum(rewards) / len(rewards) if kind == "batch" else (mean_so_far or 0.0)
    return [
        msgspec.structs.replace(sample, advantage=sample.reward - baseline)
        if sample.reward is not None and trains(sample)
        else sample
        for sample in samples
    ]
