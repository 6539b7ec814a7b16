"""Charts with 95 % intervals over seeds: learning curves of arms, and bars of targets. matplotlib is loaded on use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from openclaw_rl.evaluation.arm import Arm
from openclaw_rl.evaluation.statistics import Interval, interval
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.extras import install_command

COLOURS = ("#1b6ca8", "#8a8a8a", "#c8553d", "#5a8f3c", "#8b5fa8", "#c29000")

Curve = list[tuple[int, Interval]]
Cell = tuple[str, list[float | None]]


def curves(arms: Sequence[Arm]) -> tuple[Curve, Curve]:
    """Style and accuracy over interactions, with one value per seed at each point."""
    points = [point for arm in arms for point in arm.points]
    return (
        curve((point.interactions, point.probe.style) for point in points),
        curve((point.interactions, point.probe.accuracy) for point in points),
    )


def curve(points: Iterable[tuple[int, float]]) -> Curve:
    """The mean and interval of all values at each number of interactions."""
    values: dict[int, list[float]] = {}
    for at, value in points:
        values.setdefault(at, []).append(value)
    return [(at, interval(found)) for at, found in sorted(values.items())]


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


def draw_band(axes: Any, found: Curve, *, alpha: float, color: str, **line: Any) -> None:
    """Draw a curve with its intervals as a shaded band within 0 and 1."""
    at = [position for position, _ in found]
    ends = [(value.mean, value.half_width or 0.0) for _, value in found]
    axes.plot(at, [mean for mean, _ in ends], color=color, **line)
    low = [max(0.0, mean - half) for mean, half in ends]
    high = [min(1.0, mean + half) for mean, half in ends]
    axes.fill_between(at, low, high, color=color, alpha=alpha, linewidth=0)


def plain_frame(axes: Any, *, grid: str = "both") -> None:
    """A light grid, and no frame above and to the right."""
    axes.grid(axis=grid, alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def write_picture(figure: Any, path: Path) -> None:
    """Write a PNG; its folder is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


def draw_curves(path: Path, groups: Mapping[str, Sequence[Arm]], *, title: str) -> None:
    """Write a PNG with one line per group (arms of one kind over seeds). Raises `ConfigError` without matplotlib."""
    figure = canvas((7.5, 6.5))
    above, below = figure.subplots(2, 1, sharex=True)
    for (name, arms), colour in zip(groups.items(), COLOURS, strict=False):
        for axes, found in zip((above, below), curves(arms), strict=True):
            draw_band(axes, found, alpha=0.18, color=colour, label=name, marker="o")
    for axes, label in ((above, "style score"), (below, "accuracy")):
        axes.set_ylim(-0.03, 1.03)
        axes.set_ylabel(f"{label}, held-out tasks")
        plain_frame(axes)
        axes.set_xticks([position for position, _ in found])
    above.set_title(title)
    above.legend(frameon=False)
    below.set_xlabel("interactions (reactions of the user)")
    write_picture(figure, path)


def bar_cells(result: Mapping[str, Any]) -> list[Cell]:
    """The bars of one target's result: names and [mean, half-width]."""
    found: list[Cell] = []
    for suite, content in result.items():
        if suite == "conversation":
            for persona, summary in content.items():
                found += [(f"{persona}: style", summary["score"]), (f"{persona}: accuracy", summary["accuracy"])]
        elif isinstance(content, Mapping):
            found.append((suite, content["score"]))
    return found


def draw_bars(path: Path, results: Sequence[Mapping[str, Any]], *, title: str) -> None:
    """Write a PNG with a bar per target in each suite. Raises `ConfigError` without matplotlib."""
    figure = canvas((max(6.0, 1.3 * len(bar_cells(results[0])) + 2.0), 4.5))
    axes = figure.subplots()
    names = [name for name, _ in bar_cells(results[0])]
    width = 0.8 / len(results)
    for number, result in enumerate(results):
        values = [value for _, value in bar_cells(result)]
        mean = [value[0] or 0.0 for value in values]
        low = [min(m, value[1] or 0.0) for m, value in zip(mean, values, strict=True)]
        high = [min(1.0 - m, value[1] or 0.0) for m, value in zip(mean, values, strict=True)]
        at = [place - 0.4 + width * (number + 0.5) for place in range(len(names))]
        colour = COLOURS[number % len(COLOURS)]
        axes.bar(at, mean, width * 0.92, yerr=(low, high), capsize=3, color=colour, label=result["name"])
    axes.set_xticks(range(len(names)), names)
    axes.set_ylim(0, 1.05)
    axes.set_ylabel("mean, 95 % interval over seeds")
    plain_frame(axes, grid="y")
    axes.set_axisbelow(True)
    axes.set_title(title)
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    write_picture(figure, path)
