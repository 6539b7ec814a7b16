"""How far a step took the policy, estimated from the logprobs of sampled tokens before and after it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def drift(before: NDArray[Any], after: NDArray[Any]) -> dict[str, float]:
    """`kl/parent` and `entropy/mean` from log p `before` and log q `after` `[N]` of tokens that were sampled by the
    policy before the step; both 0 without tokens.

    With r = q/p, `kl/parent` is the mean of r − 1 − log r: it estimates KL(before ‖ after) without bias, and is no less
    than 0 at every token (Schulman, "Approximating KL Divergence", joschu.net/blog/kl-approx.html, 2020, k3).
    The other direction cannot be seen from here: a token that only the new policy likes was not sampled.
    `entropy/mean` is −Σ r·log q / Σ r, a self-normalised importance estimate of the new policy's entropy, and no less
    than 0 either.
    """
    if not before.size:
        return {"kl/parent": 0.0, "entropy/mean": 0.0}
    old, new = before.astype(np.float64), np.minimum(after.astype(np.float64), 0.0)
    logs = new - np.minimum(old, 0.0)
    # Rounding can take the difference of two nearly equal numbers below 0.
    distances = np.maximum(np.expm1(logs) - logs, 0.0)
    shares = np.exp(logs - logs.max())
    return {"kl/parent": float(distances.mean()), "entropy/mean": float(-(shares * new).sum() / shares.sum())}
