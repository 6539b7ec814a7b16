"""Turn results into JSON, a table and a chart."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.learning.cell import PROBED, TOGETHER, Result
from bench.learning.plan import ARMS
from bench.pages import interval_text
from openclaw_rl.evaluation import charts
from openclaw_rl.evaluation.statistics import spread

GOAL = 0.8
STYLES = ("-", "--", ":", "-.")
"""Line styles, for more lines than colours."""
PERIOD = 256
"""Interactions to which the number of versions is scaled."""
MEASURES = ("style", "accuracy")

Group = dict[str, dict[str, list[Result]]]
"""Results by arm and person, in order of seeds. Those of several people at one service are in the list of each."""


def grouped(results: Sequence[Result]) -> Group:
    """Group results by arm and person."""
    found: Group = {}
    for result in sorted(results, key=lambda one: one.cell.seed):
        for person in result.curves:
            found.setdefault(result.cell.arm, {}).setdefault(person, []).append(result)
    return found


def arms(results: Sequence[Result]) -> dict[str, Any]:
    """Summarize all results by arm and person, each next to its control."""
    groups = grouped(results)
    return {
        arm: {
            person: summary(
                person, seeds, groups.get(ARMS[arm].control, {}).get(person, []) if ARMS[arm].control != arm else ()
            )
            for person, seeds in people.items()
        }
        for arm, people in groups.items()
    }


def summary(person: str, results: Sequence[Result], control: Sequence[Result] = ()) -> dict[str, Any]:
    """Summarize a person over all seeds. `PROBED` stops have differences to the control of the same seed, which was
    asked the same questions with the same sampling.
    """
    entry: dict[str, Any] = {}
    references = {result.cell.seed: result for result in control}
    last = max(point.interactions for result in results for point in result.curves[person])
    for at in sorted({*PROBED, last}):
        found = {result.cell.seed: point for result in results if (point := result.at(person, at)) is not None}
        if not (found and at):
            continue
        stop: dict[str, Any] = {name: spread([getattr(one, name) for one in found.values()]) for name in MEASURES}
        known = [point.kl for point in found.values() if point.kl is not None]
        stop["kl"] = spread(known) if known else None
        stop["escape"] = spread([point.escape for point in found.values()])[0]
        for name in MEASURES:
            pairs = [
                getattr(point, name) - getattr(other, name)
                for seed, point in found.items()
                if seed in references and (other := references[seed].at(person, at)) is not None
                if name != "style" or point.wants_opposite == other.wants_opposite
            ]
            stop[f"{name}_difference"] = spread(pairs) if pairs else None
        entry[str(at)] = stop
    reached = [result.to_reach(person, GOAL) for result in results]
    middle = statistics.median_low([math.inf if at is None else at for at in reached])
    entry["to_0.8"] = None if math.isinf(middle) else int(middle)
    entry["to_0.8_seeds"] = reached
    starts = [point for result in results if (point := result.at(person, 0)) is not None]
    if starts:
        entry["before"] = {name: spread([getattr(point, name) for point in starts]) for name in MEASURES}
    entry["seeds"] = len(results)
    entry["versions"] = [result.versions for result in results]
    entry["versions_per_256"] = spread(
        [PERIOD * result.versions_made / (result.cell.interactions * len(result.curves)) for result in results]
    )
    return entry


def points(results: Sequence[Result]) -> dict[str, Any]:
    """Every point: `{ARM: {PERSON: {SEED: {N: {"style", "accuracy", "kl"}}}}}`."""
    return {
        arm: {
            person: {
                str(result.cell.seed): {
                    str(point.interactions): {"style": point.style, "accuracy": point.accuracy, "kl": point.kl}
                    for point in result.curves[person]
                }
                for result in seeds
            }
            for person, seeds in people.items()
        }
        for arm, people in grouped(results).items()
    }


def worst_of_several(results: Sequence[Result], at: int) -> dict[str, Any]:
    """By arm with several people at one service: the style of the worst person of each seed after `at` interactions
    each, and its mean and interval.
    """
    found: dict[str, list[float]] = {}
    for result in sorted(results, key=lambda one: one.cell.seed):
        stops = [result.at(person, at) for person in result.curves]
        if TOGETHER in result.cell.persona and None not in stops:
            found.setdefault(result.cell.arm, []).append(min(stop.style for stop in stops if stop is not None))
    return {arm: {"style": spread(values), "seeds": values} for arm, values in found.items()}


SHOWN = (24, 256)
"""The stops of the table."""
COLUMNS = (
    "arm",
    "person",
    "seeds",
    "to 0.8",
    *(f"style @{at} (difference)" for at in SHOWN),
    *(f"accuracy @{at} (difference)" for at in SHOWN),
    "KL",
    "escape",
    "versions",
)


def rows(found: Mapping[str, Any]) -> list[list[str]]:
    """One table row per arm and person. A run that ends before the last stop shows its end there, with the number."""
    lines = []
    for arm, people in found.items():
        for person, entry in people.items():
            stops = sorted(int(name) for name in entry if name.isdigit())
            line = [arm, person, str(entry["seeds"]), "never" if entry["to_0.8"] is None else str(entry["to_0.8"])]
            for name in MEASURES:
                line += [_stop(entry, at, name, stops) for at in SHOWN]
            last = entry[str(stops[-1])] if stops else {}
            line += [interval_text(last.get("kl")), f"{last['escape']:.2f}" if last else "–"]
            lines.append([*line, f"{entry['versions_per_256'][0]:.0f}"])
    return lines


def _stop(entry: Mapping[str, Any], at: int, name: str, stops: Sequence[int]) -> str:
    last = stops[-1] if stops else 0
    stop = entry.get(str(at)) or (entry[str(last)] if SHOWN[0] < last < at == SHOWN[-1] else None)
    if stop is None:
        return "–"
    found = interval_text(stop[name])
    difference = stop.get(f"{name}_difference")
    number = "" if str(at) in entry else f" @{last}"
    return f"{found}{number}" if difference is None else f"{found}{number} ({signed(difference)})"


def signed(value: Sequence[Any]) -> str:
    """A difference and its interval."""
    return ("" if value[0] < 0 else "+") + interval_text(value)


def draw(path: Path, results: Sequence[Result], title: str) -> None:
    """Draw a PNG: a column per person, style above accuracy, a line per arm. `ConfigError` without matplotlib."""
    groups = grouped(results)
    personas = list(dict.fromkeys(person for entry in groups.values() for person in entry))
    figure = charts.canvas((4.6 * len(personas) + 1.8, 6.4))
    axes = figure.subplots(2, len(personas), sharex=True, sharey=True, squeeze=False)
    for column, persona in enumerate(personas):
        for number, (arm, entry) in enumerate(groups.items()):
            for row, measure in enumerate(MEASURES):
                curves = [point for result in entry.get(persona, []) for point in result.curves[persona]]
                found = charts.curve((point.interactions, getattr(point, measure)) for point in curves)
                again, colour = divmod(number, len(charts.COLOURS))
                looks = {"color": charts.COLOURS[colour], "linestyle": STYLES[again % len(STYLES)]}
                if found:
                    charts.draw_band(axes[row][column], found, alpha=0.12, label=arm, **looks)
        axes[0][column].set_title(persona)
        axes[1][column].set_xlabel("interactions")
    for row, name in enumerate(MEASURES):
        axes[row][0].set_ylabel(f"{name}, held-out work")
        axes[row][0].set_ylim(-0.03, 1.03)
    for one in axes.flat:
        charts.plain_frame(one)
    entries: dict[str, Any] = {}
    for one in axes[0]:
        handles, labels = one.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
    figure.legend(list(entries.values()), list(entries), loc="outside right center", frameon=False)
    figure.suptitle(title)
    charts.write_picture(figure, path)
