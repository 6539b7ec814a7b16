"""The goals of `rehearse`, set before the measurement, and whether a result meets them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.learning import rates
from bench.learning.plan import FLAT_RATES, OURS, default_rate
from bench.learning.report import signed, text

WANTED_STYLE = {"student": 0.9, "ta": 0.8, "teacher": 0.8}
"""Style after 24 interactions."""
MOST_LOST = {"student": 0.02}
"""Accuracy lost after 24 interactions, in pairs with the control."""
MOST_VERSIONS = 12
"""Versions per 256 interactions."""
FLAT = 0.05
"""Style times accuracy at the end differs at most by this among the rates."""
EARLY = "24"
COLUMNS = ("person", "goal", "found", "")


def rows(arms: Mapping[str, Any]) -> list[list[str]]:
    """A row per person and goal: means over seeds are compared. Goals without a measurement are left out. `arms` is of
    `report.arms`.
    """
    lines = []
    for person, entry in arms.get(OURS, {}).items():
        early = entry.get(EARLY)
        if early is not None:
            if person in WANTED_STYLE:
                met = early["style"][0] >= WANTED_STYLE[person]
                lines.append([person, f"style ≥ {WANTED_STYLE[person]} @24", text(early["style"]), _met(met)])
            difference = early.get("accuracy_difference")
            if person in MOST_LOST and difference is not None:
                met = -difference[0] <= MOST_LOST[person]
                goal = f"accuracy lost ≤ {MOST_LOST[person]} @24, in pairs with the control"
                lines.append([person, goal, signed(difference), _met(met)])
        made = entry.get("versions_per_256")
        if made is not None:
            met = made[0] <= MOST_VERSIONS
            lines.append([person, f"versions ≤ {MOST_VERSIONS} per 256 interactions", f"{made[0]:.0f}", _met(met)])
        found = worth_by_rate(arms, person)
        if found:
            spread = max(found.values()) - min(found.values())
            listed = ", ".join(f"{rate:g}: {value:.2f}" for rate, value in sorted(found.items()))
            goal = f"flat within {FLAT} over rates {min(found):g} to {max(found):g}"
            lines.append([person, goal, f"{spread:.3f} ({listed})", _met(spread <= FLAT)])
    return lines


def worth_by_rate(arms: Mapping[str, Any], person: str) -> dict[float, float]:
    """Style times accuracy at the last stop by rate, from means over seeds; nothing if a rate is missing."""
    names = {default_rate(OURS): OURS, **{rate: f"{OURS}-{rate:g}" for rate in FLAT_RATES}}
    stops: Sequence[Mapping[str, Any] | None] = [
        arms.get(name, {}).get(person, {}).get(str(rates.LAST)) for name in names.values()
    ]
    if None in stops:
        return {}
    return {
        rate: stop["style"][0] * stop["accuracy"][0]
        for rate, stop in zip(names, stops, strict=True)
        if stop is not None
    }


def _met(met: bool) -> str:
    return "met" if met else "missed"
