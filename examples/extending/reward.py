"""A reward of your own, in OpenClaw-RL's contract: `custom_reward = "./examples/extending/reward.py"`.

It replaces the judge. Scores are in [0, 1] and are mapped to [−1, +1].
"""

from __future__ import annotations

from typing import Any


class Politeness:
    """1 for an answer that says please or thank you, 0.25 for any other."""

    def score(self, prompt: str, response: str, next_state: str) -> float:
        """Runs in a thread, so it may block; it may also be `async def`."""
        return 1.0 if any(word in response.lower() for word in ("please", "thank you")) else 0.25


def get_reward_model(config: Any) -> Politeness:
    """Called once; `config` has every setting, as `config["model"]` or `config.model`."""
    return Politeness()
