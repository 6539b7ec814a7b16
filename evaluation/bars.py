"""Scores of targets side by side as a picture: a bar a target in every suite, with its 95 % interval. matplotlib is
loaded when one is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from openclaw_rl.evaluation.curves import COLOURS, canvas

Cell = tuple[str, list[float | None]]


def cells(result: Mapping[str, Any]) -> list[Cell]:
    """What one target's result has to show: names and [mean, half-width]."""
    found: list[Cell] = []
    for suite, content in result.items():
        if suite == "conversation":
            for persona, summary in content.items():
                found += [(f"{persona}: style", summary["score"]), (f"{persona}: accuracy", summary["accuracy"])]
        elif isinstance(content, Mapping):
            found.append((suite, content["score"]))
    return found


def draw(path: Path, results: Sequence[Mapping[str, Any]], *, title: str) -> None:
    """Write a PNG. Raises `ConfigError` without matplotlib."""
    figure = canvas((max(6.0, 1.3 * len(cells(results[0])) + 2.0), 4.5))
    axes = figure.subplots()
    names = [name for name, _ in cells(results[0])]
    width = 0.8 / len(results)
    for number, result in enumerate(results):
        values = [value for _, value in cells(result)]
        mean = [value[0] or 0.0 for value in values]
        low = [min(m, value[1] or 0.0) for m, value in zip(mean, values, strict=True)]
        high = [min(1.0 - m, value[1] or 0.0) for m, value in zip(mean, values, strict=True)]
        at = [place - 0.4 + width * (number + 0.5) for place in range(len(names))]
        colour = COLOURS[number % len(COLOURS)]
        axes.bar(at, mean, width * 0.92, yerr=(low, high), capsize=3, color=colour, label=result["name"])
    axes.set_xticks(range(len(names)), names)
    axes.set_ylim(0, 1.05)
    axes.set_ylabel("mean, 95 % interval over seeds")
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(title)
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
