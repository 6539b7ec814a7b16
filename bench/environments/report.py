"""The figures of finished cells. Pure functions.

Pass rates are shares of all held-out attempts of all seeds, and intervals are Wilson's, of so many independent trials.
They say how well a rate is known, not how much seeds differ: `points` has every seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from bench.environments.cell import EnvironmentPoint, EnvironmentResult
from bench.pages import met
from openclaw_rl.environments.pass_rate import wilson

TRAINED = "trained"
OTHERS = ("control", "placebo", "outcome_only")
WANTED_RATE = {"sums": 0.8}
"""The held-out pass rate that training has to reach."""
MOST_LOST = 0.08
"""Accuracy of word problems that training may cost."""
MOST_SECONDS = 300.0
"""Of a seed, attempts and learning."""
COLUMNS = ("environment", "arm", "seeds", "pass rate before", "after", "seed by seed", "word problems", "plain style")
GOAL_COLUMNS = ("environment", "goal", "found", "")


def entries(results: Sequence[EnvironmentResult]) -> dict[str, Any]:
    """By environment: the rates of the issue's line (`None` for an arm that is missing), and `arms` with the rest."""
    found: dict[str, dict[str, list[EnvironmentResult]]] = {}
    for result in results:
        found.setdefault(result.cell.environment, {}).setdefault(result.cell.arm, []).append(result)
    return {environment: _entry(arms) for environment, arms in found.items()}


def _entry(arms: Mapping[str, Sequence[EnvironmentResult]]) -> dict[str, Any]:
    figures = {arm: _arm(results) for arm, results in arms.items()}
    trained = figures.get(TRAINED, {})
    low, high = trained.get("interval") or (None, None)
    return {
        "before": trained.get("before"),
        "after": trained.get("after"),
        **{arm: figures.get(arm, {}).get("after") for arm in OTHERS},
        "half_width": None if low is None else round((high - low) / 2, 4),
        "seeds": trained.get("seeds", 0),
        "episodes": max((result.cell.episodes for result in arms.get(TRAINED, ())), default=0),
        "seconds": trained.get("seconds"),
        "arms": figures,
        "points": {arm: {str(one.cell.seed): _point(one) for one in results} for arm, results in arms.items()},
    }


def _arm(results: Sequence[EnvironmentResult]) -> dict[str, Any]:
    before, after = [one.before for one in results], [one.after for one in results]
    return {
        "seeds": len(results),
        "before": _rate(before),
        "after": _rate(after),
        "interval": _interval(after),
        "accuracy": [_mean([point.accuracy for point in points]) for points in (before, after)],
        "style": [_mean([point.style for point in points]) for points in (before, after)],
        "versions": _mean([float(sum(one.versions.values())) for one in results]),
        "seconds": _mean([one.seconds for one in results]),
        "cpu_seconds": _mean([one.cpu_seconds for one in results]),
    }


def _point(result: EnvironmentResult) -> dict[str, Any]:
    before, after = result.before, result.after
    return {
        "before": round(before.rate, 4),
        "after": round(after.rate, 4),
        "accuracy": [before.accuracy, after.accuracy],
        "style": [before.style, after.style],
        "training": result.training,
        "trained": result.trained,
        "quarantined": result.quarantined,
        "versions": result.versions,
        "seconds": result.seconds,
        "settled": result.settled,
    }


def _rate(points: Sequence[EnvironmentPoint]) -> float | None:
    judged = sum(point.judged for point in points)
    return round(sum(point.passed for point in points) / judged, 4) if judged else None


def _interval(points: Sequence[EnvironmentPoint]) -> list[float] | None:
    rate = _rate(points)
    if rate is None:
        return None
    return [round(end, 4) for end in wilson(rate, sum(point.judged for point in points))]


def _mean(values: Sequence[float]) -> float:
    return round(fmean(values), 4)


def rows(found: Mapping[str, Any]) -> list[list[str]]:
    """A row per environment and arm. `found` is of `entries`."""
    return [
        [
            environment,
            arm,
            str(figures["seeds"]),
            _text(figures["before"]),
            f"{_text(figures['after'])} ({_range(figures['interval'])})",
            " ".join(_text(point["after"]) for point in entry["points"][arm].values()),
            " → ".join(map(_text, figures["accuracy"])),
            " → ".join(map(_text, figures["style"])),
        ]
        for environment, entry in found.items()
        for arm, figures in entry["arms"].items()
    ]


def goals(found: Mapping[str, Any]) -> list[list[str]]:
    """A row per goal of an environment, with what was found."""
    lines = []
    for environment, entry in found.items():
        figures = entry["arms"].get(TRAINED)
        if figures is None:
            continue
        if wanted := WANTED_RATE.get(environment):
            reached = figures["after"] is not None and figures["after"] >= wanted
            lines.append([environment, f"pass rate ≥ {wanted}", _text(figures["after"]), met(reached)])
            apart = separate(figures, entry["arms"].get("control"))
            shown = " and ".join(
                _range(entry["arms"][arm]["interval"]) for arm in (TRAINED, "control") if arm in entry["arms"]
            )
            lines.append([environment, "above the control, intervals apart", shown, met(apart)])
        lost = figures["accuracy"][0] - figures["accuracy"][1]
        lines.append([environment, f"word problems lost ≤ {MOST_LOST}", f"{lost:.3f}", met(lost <= MOST_LOST)])
        seconds = figures["seconds"]
        lines.append(
            [environment, f"seconds a seed ≤ {MOST_SECONDS:.0f}", f"{seconds:.0f}", met(seconds <= MOST_SECONDS)]
        )
    return lines


def separate(figures: Mapping[str, Any], other: Mapping[str, Any] | None) -> bool | None:
    """True if the interval of the pass rate after training is wholly above the other's; `None` without one of them."""
    if other is None or not (figures["interval"] and other["interval"]):
        return None
    return bool(figures["interval"][0] > other["interval"][1])


def _text(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _range(interval: Sequence[float] | None) -> str:
    return "–" if interval is None else f"{interval[0]:.2f} to {interval[1]:.2f}"
