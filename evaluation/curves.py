"""Learning curves as a picture: mean and 95 % interval over seeds, style above accuracy. matplotlib is loaded when one
is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from openclaw_rl.evaluation.arm import Arm
from openclaw_rl.evaluation.statistics import Interval, interval
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.extras import install_command

COLOURS = ("#1b6ca8", "#8a8a8a", "#c8553d", "#5a8f3c", "#8b5fa8", "#c29000")

Curve = list[tuple[int, Interval]]


def curves(arms: Sequence[Arm]) -> tuple[Curve, Curve]:
    """Style and accuracy over interactions, one value a seed at each point."""
    style: dict[int, list[float]] = {}
    accuracy: dict[int, list[float]] = {}
    for arm in arms:
        for point in arm.points:
            style.setdefault(point.interactions, []).append(point.probe.style)
            accuracy.setdefault(point.interactions, []).append(point.probe.accuracy)
    return [(at, interval(values)) for at, values in sorted(style.items())], [
        (at, interval(values)) for at, values in sorted(accuracy.items())
    ]


def canvas(inches: tuple[float, float]) -> Any:
    """An empty figure of matplotlib. Raises `ConfigError` without it."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ConfigError(f"a picture needs matplotlib: {install_command('demo')}") from error
    figure = Figure(figsize=inches, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def draw(path: Path, groups: Mapping[str, Sequence[Arm]], *, title: str) -> None:
    """Write a PNG with one line a group (arms of the same kind over seeds). Raises `ConfigError` without matplotlib."""
    figure = canvas((7.5, 6.5))
    above, below = figure.subplots(2, 1, sharex=True)
    for (name, arms), colour in zip(groups.items(), COLOURS, strict=False):
        for axes, curve in zip((above, below), curves(arms), strict=True):
            at = [position for position, _ in curve]
            mean = [value.mean for _, value in curve]
            spread = [value.half_width or 0.0 for _, value in curve]
            axes.plot(at, mean, marker="o", color=colour, label=name)
            low = [max(0.0, m - s) for m, s in zip(mean, spread, strict=True)]
            high = [min(1.0, m + s) for m, s in zip(mean, spread, strict=True)]
            axes.fill_between(at, low, high, color=colour, alpha=0.18, linewidth=0)
    for axes, label in ((above, "style score"), (below, "accuracy")):
        axes.set_ylim(-0.03, 1.03)
        axes.set_ylabel(f"{label}, held-out tasks")
        axes.grid(alpha=0.3)
        axes.set_xticks([position for position, _ in curve])
        axes.spines[["top", "right"]].set_visible(False)
    above.set_title(title)
    above.legend(frameon=False)
    below.set_xlabel("interactions (reactions of the user)")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
