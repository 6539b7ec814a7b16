"""Define a method: `method = "./examples/extending/method.py"`.

Binary RL with advantages standardized within a step: a turn's reward minus the mean, in standard deviations. Such an
advantage is not bounded by [−1, +1].
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, pstdev

import msgspec

from openclaw_rl.learner.methods import Method
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.settings.settings import Settings


class Standardized(Method, frozen=True):
    """A method chooses the hints and rewards to train on (fields) and the advantages (this function)."""

    def advantages(self, samples: Sequence[Sample]) -> Sequence[Sample]:
        """Set the advantage of each sample of a step; rollouts are not passed."""
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
    """Create the method from the settings; a `Method` instance named `method` works too."""
    return Standardized("standardized", rewards="all")
