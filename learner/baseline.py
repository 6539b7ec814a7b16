"""What is taken off rewards before they train, so that an answer is compared with what is usual. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from openclaw_rl.shared.records import PolicyVersion, Sample

MEMORY = 0.9
"""Decay of the running mean at each version."""


def usual_reward(versions: Sequence[PolicyVersion]) -> float | None:
    """The running mean of the rewards that versions were made from, oldest first; `None` before the first.

    It is read off the journal, so a restart changes nothing. Rejected versions do not count.
    """
    usual: float | None = None
    for version in versions:
        mean = version.metrics.get("reward/mean")
        if mean is not None and version.state != "rejected" and version.sample_ids:
            usual = mean if usual is None else MEMORY * usual + (1.0 - MEMORY) * mean
    return usual


def less_baseline(
    samples: Sequence[Sample],
    kind: Literal["none", "batch", "running"],
    usual: float | None,
    trains: Callable[[Sample], bool],
) -> list[Sample]:
    """The samples, those whose reward may train (`trains`) with an `advantage` = reward − baseline.

    The baseline is the mean over those rewards of this step (`batch`), or `usual` (`running`; 0 before there is one).
    Source: REINFORCE with a baseline (Williams 1992).
    """
    rewards = [sample.reward for sample in samples if sample.reward is not None and trains(sample)]
    if kind == "none" or not rewards:
        return list(samples)
    baseline = math.fsum(rewards) / len(rewards) if kind == "batch" else (usual or 0.0)
    return [
        msgspec.structs.replace(sample, advantage=sample.reward - baseline)
        if sample.reward is not None and trains(sample)
        else sample
        for sample in samples
    ]
