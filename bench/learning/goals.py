"""The goals of `rehearse`, set before the measurement, and whether a result meets them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench.learning import rates
from bench.learning.plan import FLAT_RATES, OURS, default_rate
from bench.learning.report import signed
from bench.pages import interval_text, met

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
    """A row per person and goal: means over seeds are compared. `arms` is of `report.arms`."""
    return [row for person, entry in arms.get(OURS, {}).items() for row in _of_person(person, entry, arms)]


def _of_person(person: str, entry: Mapping[str, Any], arms: Mapping[str, Any]) -> Iterator[list[str]]:
    early = entry.get(EARLY) or {}
    if person in WANTED_STYLE:
        style = early.get("style")
        reached = style and style[0] >= WANTED_STYLE[person]
        yield [person, f"style ≥ {WANTED_STYLE[person]} @{EARLY}", interval_text(style), met(reached)]
    if person in MOST_LOST:
        difference = early.get("accuracy_difference")
        reached = difference and -difference[0] <= MOST_LOST[person]
        goal = f"accuracy lost ≤ {MOST_LOST[person]} @{EARLY}, in pairs with the control"
        yield [person, goal, signed(difference) if difference else interval_text(None), met(reached)]
    made = entry["versions_per_256"][0]
    yield [person, f"versions ≤ {MOST_VERSIONS} per 256 interactions", f"{made:.0f}", met(made <= MOST_VERSIONS)]
    found = worth_by_rate(arms, person)
    goal = f"flat within {FLAT} over rates {min(FLAT_RATES):g} to {max(FLAT_RATES):g}"
    if not found:
        yield [person, goal, interval_text(None), met(None)]
        return
    spread = max(found.values()) - min(found.values())
    listed = ", ".join(f"{rate:g}: {value:.2f}" for rate, value in sorted(found.items()))
    yield [person, goal, f"{spread:.3f} ({listed})", met(spread <= FLAT)]


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
