"""Whether a candidate may serve. It sees the step's report; probes of the candidate itself come beside this.

A `TrainerError` of the step (a loss or gradient that is not finite) is a verdict too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from shared.trainer import StepReport


class Verdict(msgspec.Struct, frozen=True):
    """Whether the candidate passed, why not, and the figures that this rests on."""

    passed: bool
    reason: str = ""
    figures: Mapping[str, float] = {}

    def report(self) -> dict[str, Any]:
        """What the journal keeps with the version."""
        return {"passed": self.passed, "reason": self.reason, **self.figures}


def examine(report: StepReport, *, max_kl: float) -> Verdict:
    """Reject a step whose figures are not finite or that went further than `max_kl` from its parent (nats a token, on
    the batch).
    """
    divergence = report.metrics.get("kl/parent", 0.0)
    figures = {"kl_parent": divergence, "max_kl": max_kl}
    broken = sorted(name for name, value in report.metrics.items() if not math.isfinite(value))
    if broken:
        return Verdict(False, f"not finite: {', '.join(broken)}")
    if divergence > max_kl:
        return Verdict(
            False, f"{divergence:.3g} nats a token from its parent, more than guard_max_kl = {max_kl:g}", figures
        )
    return Verdict(True, "", figures)


def failed_step(error: Exception) -> Verdict:
    """The verdict on a batch that no step could be made from."""
    return Verdict(False, str(error))
