"""Write what bench.real_model measured into docs/methods.md, next to the tiny policy: `python -m
bench.real_model.page`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bench.pages import MISSED, Section, interval_text, result, table
from bench.real_model import report
from bench.real_model.cell import PUBLISHED, STOPS

_HEAD = """
## Measured on a real model

`{command}`
({date}; commit {commit:.8}; {model}; means ± 95 % intervals over {seeds}). Three simulated people have a wish
that a program checks: no lists and no bold (`plain`), at most two sentences (`brief`), a question at the end
(`asking`). The presets were tuned on `brief`, and trials of other variants looked at `plain`. How a hint is held
against accepted answers was changed after a look at the steps of `plain`, and tried once with `asking`. So none is
untouched. Style is the share of first answers to held-out questions that respect the wish. Knowledge is the share of
the questions answered rightly once by the base that are answered rightly again, on other samples; so the control's is
below 1. Degenerate answers are empty or loops. The last columns have the log-likelihood of held-out texts, the versions
of each seed, and the CPU time of talking and learning.

![Curves](../bench/results/{curve})

"""
_GOALS = """
### What was sought

The goals were set before the measurement. {missed} of {all} are missed.

"""
_PUBLISHED = """
Compare with care: {names} ran with fewer people or seeds than `trained`. A row without ± has one seed.
"""
_SIDE_BY_SIDE = """
### The tiny and the real model side by side

`rehearse` with the presets of each model. “Kept” is the accuracy at the tiny policy's own tasks, and the knowledge of
SmolLM2, both after {last} interactions; the control's follows in brackets. The tiny policy's rows are those of the
table above, which was measured with means over tokens and without weight decay, and is to be measured again.

"""
_NOTHING = """
## Measured on a real model

Nothing yet: `python -m bench.real_model --published --save bench/results/real_model.json`.
"""
COLUMNS = ("model", "person", *(f"style @{at}" for at in STOPS), "kept")


def measured() -> str:
    """The section: tables of the result, or a line that there is none."""
    found = result("real_model.json")
    if found is None:
        return _NOTHING
    seeds = "one seed" if found["seeds"] == 1 else f"{found['seeds']} seeds"
    parts = [
        _HEAD.format(**{name: found[name] for name in ("command", "date", "commit", "model", "curve")}, seeds=seeds),
        table(report.COLUMNS, report.rows(found["arms"])),
    ]
    fewer = report.with_fewer_cells(found["arms"], PUBLISHED)
    if fewer:
        parts.append(_PUBLISHED.format(names=" and ".join(f"`{name}`" for name in fewer)))
    goals = report.goals(found["arms"])
    if goals:
        missed = sum(row[-1] == MISSED for row in goals)
        parts += [_GOALS.format(missed=missed, all=len(goals)), table(("person", "goal", "found", ""), goals)]
    tiny = result("learning.json")
    if tiny is not None:
        rows = [*_rows("tiny", tiny["arms"]["rehearse"], tiny["arms"]["control"], "accuracy")]
        rows += _rows(found["model"], found["arms"].get("trained", {}), found["arms"].get("control", {}), "knowledge")
        parts += [_SIDE_BY_SIDE.format(last=STOPS[-1]), table(COLUMNS, rows)]
    return "".join(parts)


def _rows(model: str, trained: Mapping[str, Any], control: Mapping[str, Any], kept: str) -> Iterator[list[str]]:
    """A row per person: style at the stops, and what was kept at the last one."""
    last = str(STOPS[-1])
    for person, entry in trained.items():
        points = [entry.get("before" if not at and "before" in entry else str(at)) for at in STOPS]
        styles = [interval_text(point["style"]) if point else "–" for point in points]
        both = [interval_text(one[last][kept]) if last in one else "–" for one in (entry, control.get(person, {}))]
        yield [model, f"`{person}`", *styles, f"{both[0]} ({both[1]})"]


SECTION = Section("methods.md", "real-model", measured)

if __name__ == "__main__":
    SECTION.write()
