"""The pass rate of a run, with its interval."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable

import msgspec

from openclaw_rl.environments.attempt_log import EndedLine

PASSED = 1.0
"""The reward from which an attempt counts as passed."""
_NORMAL_QUANTILE = 1.959964


class PassRate(msgspec.Struct, frozen=True, kw_only=True):
    """The share `rate` of attempts with a reward of 1 or more, among those with a verdict, and its 95 % interval; the
    mean reward. All four are `None` without a verdict. `no_verdict` counts the others, by status. `steps` is the mean
    number of model calls of all attempts.
    """

    attempts: int
    tasks: int
    rate: float | None
    low: float | None
    high: float | None
    reward: float | None
    steps: float
    no_verdict: dict[str, int]

    def __str__(self) -> str:
        if self.rate is None or self.low is None or self.high is None:
            shown = f"no verdict on {self.attempts} attempts"
        else:
            shown = f"{self.rate:.2f} (95 % interval {self.low:.2f} to {self.high:.2f})"
        missing = ", ".join(f"{count} {status}" for status, count in self.no_verdict.items())
        return shown + (f"; without a verdict: {missing}" if missing else "")


def pass_rate(lines: Iterable[EndedLine]) -> PassRate:
    """The figures of some attempts. Attempts at one task are alike, so the interval (Wilson's) counts tasks, and each
    task has the same weight.
    """
    all_lines = list(lines)
    rewards: defaultdict[str, list[float]] = defaultdict(list)
    for line in all_lines:
        if line.reward is not None:
            rewards[line.member.task].append(line.reward)
    shares = [math.fsum(reward >= PASSED for reward in found) / len(found) for found in rewards.values()]
    rate = math.fsum(shares) / len(shares) if shares else None
    low, high = wilson(rate, len(shares)) if rate is not None else (None, None)
    flat = [reward for found in rewards.values() for reward in found]
    return PassRate(
        attempts=len(all_lines),
        tasks=len({line.member.task for line in all_lines}),
        rate=_rounded(rate),
        low=_rounded(low),
        high=_rounded(high),
        reward=_rounded(math.fsum(flat) / len(flat)) if flat else None,
        steps=round(math.fsum(line.steps for line in all_lines) / max(1, len(all_lines)), 2),
        no_verdict=dict(Counter(line.status for line in all_lines if line.reward is None)),
    )


def wilson(share: float, count: int) -> tuple[float, float]:
    """The 95 % interval of a share of `count` independent trials (Wilson 1927)."""
    z = _NORMAL_QUANTILE**2 / count
    centre = (share + z / 2) / (1 + z)
    half = math.sqrt(z * (share * (1 - share) + z / 4)) / (1 + z)
    return max(0.0, centre - half), min(1.0, centre + half)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
