"""A method of your own: `method = "./examples/extending/method.py"`.

Binary RL with advantages standardized within a step: a turn's advantage is its distance from the step's mean reward, in
standard deviations. Such an advantage is not bounded by [−1, +1].
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, pstdev

import msgspec

from openclaw_rl.learner.methods import Method
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.settings.settings import Settings


class Standardized(Method, frozen=True):
    """Standardizes rewards within a step. The fields select hints and rewards, this function sets the advantages."""

    def advantages(self, samples: Sequence[Sample]) -> Sequence[Sample]:
        """The samples of a step, each with its advantage; rollouts are not among them."""
        rewards = [sample.reward for sample in samples if sample.reward is not None]
        spread = pstdev(rewards) if rewards else 0.0
        if not spread:
            return samples
        mean = fmean(rewards)
        return [
            sample
            if sample.reward is None
            else msgspec.structs.replace(sample, advantage=(sample.reward - mean) / spread)
            for sample in samples
        ]


def method(settings: Settings) -> Method:
    """A function that makes a `Method` from the settings; a `Method` itself works too."""
    return Standardized("standardized", rewards="all")
