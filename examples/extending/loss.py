"""A loss of your own: `custom_loss = "./examples/extending/loss.py"`.

REINFORCE with a KL to the base, in place of every other term. It runs in the trainer, so torch may be imported here.
"""

from __future__ import annotations

from torch import Tensor

from openclaw_rl.shared.objective import losses
from openclaw_rl.shared.objective.custom_loss import LossTokens

BETA = 0.05


def loss(tokens: LossTokens) -> Tensor:
    """One value per response token, `[N]`; the trainer takes the mean over the batch."""
    log_probs = losses.log_softmax(tokens.logits)
    chosen = log_probs.gather(-1, tokens.token_ids[:, None])[:, 0]
    distance = losses.reverse_kl(log_probs, tokens.base_log_probs)
    return -tokens.advantages * chosen + BETA * distance
