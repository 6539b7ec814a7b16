"""Logprobs at a lower temperature, from those at temperature 1 of the likeliest tokens alone."""

from __future__ import annotations

import math
from collections.abc import Sequence


def cooled(logprob: float, top: Sequence[tuple[float, int]], temperature: float) -> tuple[float, float]:
    """The logprob at `temperature` (above 0, below 1) of a token that has `logprob` at 1, and how far it may be off.

    `top` holds the `(logprob, id)` of the likeliest tokens, best first, at least one. With the power s = 1/T the wanted
    value is s·log p(a) − log Σ_v p(v)^s. The tokens outside `top` hold the mass m, and none of them is likelier than
    the last one in it, q: their share of the sum lies between 0 and m·q^(s−1). The middle of the two is given.
    """
    power = 1 / temperature
    best = top[0][0] * power
    known = best + math.log(math.fsum(math.exp(value * power - best) for value, _ in top))
    mass = 1 - math.fsum(math.exp(value) for value, _ in top)
    if mass <= 0:
        return logprob * power - known, 0.0
    rest = math.log(mass) + (power - 1) * top[-1][0]
    slack = math.log1p(math.exp(rest - known)) / 2
    return logprob * power - known - slack, slack
