"""A loss in OpenClaw-RL's contract: `custom_loss = "./examples/extending/compute_loss.py"`.

The contract does not pass the sampled tokens, so the loss can only move whole distributions: here towards the base,
further for worse rewards.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor


def compute_loss(
    policy_logits: Tensor, reference_logits: Tensor, rewards: Tensor, advantages: Tensor, config: Any
) -> Tensor:
    """A scalar, or one value per response token. Logits are `[N, V]`, rewards and advantages `[N]`."""
    policy, reference = policy_logits.log_softmax(-1), reference_logits.log_softmax(-1)
    distance = (policy.exp() * (policy - reference)).sum(-1)
    return ((1.0 - rewards) * distance).mean()
