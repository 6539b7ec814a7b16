"""Turn results into JSON, a table and a chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.pages import interval_text, met
from bench.real_model.cell import STOPS, RealModelResult
from openclaw_rl.evaluation import charts
from openclaw_rl.evaluation.statistics import spread

MEASURES = ("style", "knowledge", "degenerate", "likelihood")
COLUMNS = (
    "arm",
    "person",
    *(f"style @{at}" for at in STOPS),
    "knowledge",
    "degenerate",
    "nats a token",
    "versions",
    "CPU-s",
)

MOST_STYLE = 0.4
"""The share of the base's answers that may respect a wish; the recipe is measured where the base does otherwise."""
LEAST_KNOWN = 100
"""The number of questions that the base must answer rightly, for its knowledge to be measured."""

WANTED_STYLE = 0.8
"""The goal: this share of held-out answers respects the wish at the middle stop."""
STILL = 0.1
"""The goal: the control's style stays this close to its start."""
KEPT = 0.05
"""The goal: `trained` knows at most this share less than the control at the last stop."""


def grouped(results: Sequence[RealModelResult]) -> dict[str, dict[str, list[RealModelResult]]]:
    """Group results by arm and person, in order of seeds."""
    found: dict[str, dict[str, list[RealModelResult]]] = {}
    for result in sorted(results, key=lambda one: one.cell.seed):
        found.setdefault(result.cell.arm, {}).setdefault(result.cell.person, []).append(result)
    return found


def arms(results: Sequence[RealModelResult]) -> dict[str, Any]:
    """Mean and half-width of each measure at each stop, by arm and person; and each seed's own figures."""
    return {
        arm: {person: _summary(seeds) for person, seeds in people.items()} for arm, people in grouped(results).items()
    }


def _summary(results: Sequence[RealModelResult]) -> dict[str, Any]:
    entry: dict[str, Any] = {}
    for stop in STOPS:
        points = [point for point in (result.at(stop) for result in results) if point is not None]
        if points:
            entry[str(stop)] = {name: spread([getattr(point, name) for point in points]) for name in MEASURES} | {
                "seeds": [{name: getattr(point, name) for name in MEASURES} for point in points]
            }
    entry["known"] = [result.known for result in results]
    entry["versions"] = [result.versions for result in results]
    entry["complaints"] = [result.complaints for result in results]
    entry["cpu_seconds"] = spread([result.cpu_seconds for result in results])
    entry["step_seconds"] = [result.steps for result in results]
    return entry


def warnings(found: Mapping[str, Any]) -> list[str]:
    """A line for each person whose wish the control respects too often at the start, or with whom a seed's base knew
    too little. `found` is of `arms`.
    """
    lines = []
    for person in dict.fromkeys(person for people in found.values() for person in people):
        start = found.get("control", {}).get(person, {}).get("0")
        if start is not None and start["style"][0] > MOST_STYLE:
            lines.append(
                f"{person}: the base respects the wish in {start['style'][0]:g} of its answers, more than {MOST_STYLE}"
            )
        known = min(min(people[person]["known"]) for people in found.values() if person in people)
        if known < LEAST_KNOWN:
            lines.append(f"{person}: the base answered {known} questions rightly, fewer than {LEAST_KNOWN}")
    return lines


def goals(found: Mapping[str, Any]) -> list[list[str]]:
    """A row per person of `trained` and goal: what was sought, what was found, and whether that meets it.

    Means over seeds are compared. `found` is of `arms`; a person whom the control lacks is left out.
    """
    lines = []
    for person, entry in found.get("trained", {}).items():
        control = found.get("control", {}).get(person)
        if control is None or any(str(at) not in one for one in (entry, control) for at in STOPS):
            continue
        first, middle, last = map(str, STOPS)
        style = entry[middle]["style"]
        moved = max(abs(control[at]["style"][0] - control[first]["style"][0]) for at in (middle, last))
        broken = entry[last]["degenerate"][0] - control[last]["degenerate"][0]
        lost = control[last]["knowledge"][0] - entry[last]["knowledge"][0]
        lines += [
            [person, f"style ≥ {WANTED_STYLE} @{middle}", interval_text(style), met(style[0] >= WANTED_STYLE)],
            [person, f"degenerate answers, more than the control @{last}", f"{broken:.2f}", met(broken <= 0)],
            [person, f"control within {STILL} of its start", f"{moved:.2f}", met(moved <= STILL)],
            [person, f"knowledge lost ≤ {KEPT} @{last}, next to the control", f"{lost:.2f}", met(lost <= KEPT)],
        ]
    return lines


def with_fewer_cells(found: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Arms of `names` that ran with fewer people or seeds than `trained`."""
    cells = {arm: sum(len(entry["known"]) for entry in people.values()) for arm, people in found.items()}
    return [name for name in names if 0 < cells.get(name, 0) < cells.get("trained", 0)]


def mixed_code(results: Sequence[RealModelResult]) -> list[str]:
    """A line if the cells come from more than one state of the code."""
    commits = sorted({result.commit[:8] or "unknown" for result in results})
    return [f"the cells come from {len(commits)} states of the code: {', '.join(commits)}"] if len(commits) > 1 else []


def rows(found: Mapping[str, Any]) -> list[list[str]]:
    """One table row per arm and person; knowledge and the like at the last stop."""
    lines = []
    for arm, people in found.items():
        for person, entry in people.items():
            stops = [entry.get(str(at)) for at in STOPS]
            last = [stop for stop in stops if stop][-1]
            versions = ", ".join(str(sum(count.values())) for count in entry["versions"])
            styles = [interval_text(stop["style"]) if stop else "–" for stop in stops]
            others = [interval_text(last[name]) for name in ("knowledge", "degenerate", "likelihood")]
            lines.append([arm, person, *styles, *others, versions, f"{entry['cpu_seconds'][0]:.0f}"])
    return lines


def draw(path: Path, results: Sequence[RealModelResult], title: str) -> None:
    """Draw a PNG: a column per person, style above knowledge, a line per arm. `ConfigError` without matplotlib."""
    groups = grouped(results)
    people = list(dict.fromkeys(person for entry in groups.values() for person in entry))
    figure = charts.canvas((4.2 * len(people) + 1.5, 6.0))
    axes = figure.subplots(2, len(people), sharex=True, sharey=True, squeeze=False)
    for column, person in enumerate(people):
        for number, (arm, entry) in enumerate(groups.items()):
            for row, measure in enumerate(("style", "knowledge")):
                points = [point for result in entry.get(person, []) for point in result.points]
                found = charts.curve((point.interactions, getattr(point, measure)) for point in points)
                if found:
                    colour = charts.COLOURS[number % len(charts.COLOURS)]
                    charts.draw_band(axes[row][column], found, alpha=0.12, label=arm, color=colour)
        axes[0][column].set_title(person)
        axes[1][column].set_xlabel("interactions")
    axes[0][0].set_ylabel("style, held-out questions")
    axes[1][0].set_ylabel("knowledge kept")
    axes[0][0].set_ylim(-0.03, 1.03)
    for one in axes.flat:
        charts.plain_frame(one)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False)
    figure.suptitle(title)
    charts.write_picture(figure, path)
