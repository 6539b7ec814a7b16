"""Define a reward by OpenClaw-RL's contract: `custom_reward = "./examples/extending/reward.py"`.

It replaces the judge. Scores are in [0, 1] and mapped to [−1, +1].
"""

from __future__ import annotations

from typing import Any


class Politeness:
    """Reward 1 for an answer with "please" or "thank you", else 0.25."""

    def score(self, prompt: str, response: str, next_state: str) -> float:
        """May block, because it runs in a thread; may be `async def` too."""
        return 1.0 if any(word in response.lower() for word in ("please", "thank you")) else 0.25


def get_reward_model(config: Any) -> Politeness:
    """Create the model, once; `config` holds every setting, as `config["model"]` or `config.model`."""
    return Politeness()
