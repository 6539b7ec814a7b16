"""Turn results into JSON, a table and a chart."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.learning.cell import PROBED, Result
from openclaw_rl.evaluation import charts
from openclaw_rl.evaluation.statistics import Interval, spread

GOAL = 0.8
STYLES = ("-", "--", ":")
"""Line styles, for more lines than colours."""


def summary(results: Sequence[Result]) -> dict[str, Any]:
    """Summarize one arm and persona over all seeds."""
    entry: dict[str, Any] = {}
    for at in PROBED:
        points = [point for point in (result.at(at) for result in results) if point is not None]
        if points:
            entry[str(at)] = {
                "style": spread([point.style for point in points]),
                "accuracy": spread([point.accuracy for point in points]),
                "kl": _mean([point.kl for point in points]),
                "escape": _mean([point.escape for point in points]),
            }
    reached = [result.to_reach(GOAL) for result in results]
    middle = statistics.median_low([math.inf if at is None else at for at in reached])
    entry["to_0.8"] = None if math.isinf(middle) else int(middle)
    entry["to_0.8_seeds"] = reached
    entry["before"] = {
        "style": spread([result.points[0].style for result in results]),
        "accuracy": spread([result.points[0].accuracy for result in results]),
    }
    entry["versions"] = [result.versions for result in results]
    return entry


def grouped(results: Sequence[Result]) -> dict[str, dict[str, list[Result]]]:
    """Group results by arm and persona, in order of seeds."""
    found: dict[str, dict[str, list[Result]]] = {}
    for result in sorted(results, key=lambda one: one.cell.seed):
        found.setdefault(result.cell.arm, {}).setdefault(result.cell.persona, []).append(result)
    return found


def arms(results: Sequence[Result]) -> dict[str, Any]:
    """Summarize all results by arm and persona."""
    return {
        arm: {persona: summary(seeds) for persona, seeds in personas.items()}
        for arm, personas in grouped(results).items()
    }


def rows(found: Mapping[str, Any]) -> list[list[str]]:
    """One table row per arm and persona: style / accuracy at each stop."""
    lines = []
    for arm, personas in found.items():
        for persona, entry in personas.items():
            line = [arm, persona]
            for at in PROBED:
                stop = entry.get(str(at))
                line.append(f"{_cell(stop['style'])} / {_cell(stop['accuracy'])}" if stop else "–")
            last = next((entry[str(at)] for at in reversed(PROBED) if str(at) in entry), None)
            line.append("never" if entry["to_0.8"] is None else str(entry["to_0.8"]))
            line += [f"{last['kl']:.2f}", f"{last['escape']:.2f}"] if last and last["kl"] is not None else ["–", "–"]
            lines.append(line)
    return lines


COLUMNS = ("arm", "persona", *(f"style / accuracy @{at}" for at in PROBED), "to 0.8", "KL", "escape")


def draw(path: Path, results: Sequence[Result], title: str) -> None:
    """Draw a PNG: a column per persona, style above accuracy, a line per arm. `ConfigError` without matplotlib."""
    groups = grouped(results)
    personas = list(dict.fromkeys(persona for entry in groups.values() for persona in entry))
    figure = charts.canvas((4.6 * len(personas) + 1.5, 6.4))
    axes = figure.subplots(2, len(personas), sharex=True, sharey=True, squeeze=False)
    for column, persona in enumerate(personas):
        for number, (arm, entry) in enumerate(groups.items()):
            for row, measure in enumerate(("style", "accuracy")):
                points = [point for result in entry.get(persona, []) for point in result.points]
                found = charts.curve((point.interactions, getattr(point, measure)) for point in points)
                again, colour = divmod(number, len(charts.COLOURS))
                looks = {"color": charts.COLOURS[colour], "linestyle": STYLES[again % len(STYLES)]}
                if found:
                    charts.draw_band(axes[row][column], found, alpha=0.12, label=arm, **looks)
        axes[0][column].set_title(persona)
        axes[1][column].set_xlabel("interactions")
    for row, name in enumerate(("style", "accuracy")):
        axes[row][0].set_ylabel(f"{name}, held-out work")
        axes[row][0].set_ylim(-0.03, 1.03)
    for one in axes.flat:
        charts.plain_frame(one)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False)
    figure.suptitle(title)
    charts.write_picture(figure, path)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(math.fsum(known) / len(known), 4) if known else None


def _cell(value: Sequence[Any]) -> str:
    return str(Interval(*value)).replace(" ", "")
