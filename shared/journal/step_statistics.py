"""The rewards of a group's attempts, step by step: what the advantage of each comes from."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, pstdev

import msgspec

from openclaw_rl.shared.journal.views import GroupAttempt
from openclaw_rl.shared.records import Vote

LEAST_DEVIATION = 1e-6
"""Rewards that deviate by less are the same."""


class StepStatistics(msgspec.Struct, frozen=True):
    """The rewards of the attempts' steps of one index: their number, mean, and the standard deviation of this whole
    population.
    """

    count: int
    mean: float
    deviation: float

    @property
    def constant(self) -> bool:
        """True if several attempts got the same reward."""
        return self.count > 1 and self.deviation < LEAST_DEVIATION


def mean_vote(votes: Sequence[Vote]) -> float | None:
    """The mean score of the valid votes; `None` without one."""
    scores = [vote.score for vote in votes if vote.score is not None]
    return fmean(scores) if scores else None


def statistics(attempts: Sequence[GroupAttempt]) -> list[StepStatistics]:
    """By step index, of the steps that have a reward."""
    longest = max((len(attempt.steps) for attempt in attempts), default=0)
    return [_of([attempt.steps[index].reward for attempt in attempts if index < len(attempt.steps)])
            for index in range(longest)]  # fmt: skip


def _of(rewards: Sequence[float | None]) -> StepStatistics:
    known = [reward for reward in rewards if reward is not None]
    return StepStatistics(len(known), fmean(known), pstdev(known)) if known else StepStatistics(0, 0.0, 0.0)
