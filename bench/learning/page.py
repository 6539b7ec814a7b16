"""Write the measured part of docs/methods.md from bench/results: `python -m bench.learning.page`."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from bench.learning import goals, plan, report
from bench.pages import MET, MISSED, Section, interval_text, result, table

WIDTH = 120
"""Characters of a line of a page."""

_HEAD = """
## Measured

`{command}`
({date}; commit {commit:.8}; shipped policy, held-out tasks; means ± 95 % intervals over {seeds} seeds).
The same simulated people talk to every arm. The guard is off but in `rehearse-guard`: the table compares the methods
alone. “To 0.8” is the number of interactions until the style of the middle seed reaches 0.8. Style and accuracy are
given after {stops} interactions. In brackets is the difference to the control, in pairs of the same seed, questions and
sampling. KL is from the base, in nats per token, and escape the share of replies in neither style, both at the last
point. Versions are per 256 interactions.

![Curves](../bench/results/{curve})

"""
_RATES = """
Learning rates:

| method | {people} |
|---|{dashes}
{rates}
"""
_ARMS = {
    "rehearse": "`rehearse` has its default learning rate, and so have the arms that are named after it.",
    "rehearse-searched": "`rehearse-searched` and the published methods have the rate that one search found for each "
    "person, on other problems and seeds: the highest style times accuracy at the last point.",
    "topk-passes": "A method that ends in `-passes` gets the eight passes and the early stop of `rehearse`, and a "
    "search of its own.",
    "placebo": "`placebo` is `binary` with every verdict taken from another turn.",
    "placebo-baseline": "`placebo-baseline` also subtracts the mean of each batch from the rewards.",
    "placebo-slow": "`placebo-slow` has a quarter of the learning rate.",
    "irrelevant": "`irrelevant` is `rehearse` with hints unrelated to the answers.",
    "sparse-20": "In `sparse-20` and `sparse-10` the person reacts to 20 and 10 % of the answers and leaves the others "
    "without a word; interactions are answers.",
    "missed-half": "In `missed-half` the judge misses half of the messages.",
    "wrong-30": "`wrong-N` is `rehearse` with N % of the judgements inverted; inverted praise gets a misleading hint.",
    "changes-mind": f"In `changes-mind` the person wants the opposite style after {plan.TURNS_ABOUT} interactions, and "
    "the style column then measures the new wish.",
    "changes-mind-2": "`changes-mind-2` says the new wish in two phrases only.",
    "long-prompts": "In `long-prompts` each question follows about 500 tokens of instructions, a step may have an "
    "eighth of the usual tokens, and the wish changes after 24; `long-control` does not train. The shipped policy "
    "cannot read prompts above 4,096 tokens (it answers nothing right then, trained or not), so limit and prompts are "
    "scaled down alike.",
    "three-people": "In `three-people` a student, a TA and a teacher talk to one service that does not know who asks; "
    "interactions are each person's own.",
}
"""What an arm is, where a result has it."""
_GOALS = """
### Goals of the default recipe

The goals were set before the measurement. {met} of {all} are met, {missed} are missed, and {rest} are not measured.

"""
_BEYOND = """
### Beyond one person who always reacts

{arms}

{picture}"""
_WORST = "The worst person of each seed in `{arm}` has style {style} after 24 interactions each.\n"
_OTHER_RATES = """
### Other learning rates

`rehearse` at other rates than its default, {default:g}:

"""
_ABLATION = """
### `rehearse` without its parts

`{command}` ({date}; commit {commit:.8}; {seeds} seeds). Differences are to `whole`. In `no-memory` every turn, and the
rehearsals of a step, are taught by the hints of its own batch. In the last column are the measures that are worse
without the part by more than their interval.

![Curves](../bench/results/{curve})

"""
_COSTS = """
### Cost of known defects

`{command}` ({date}), on `combined`. Differences are to `aligned`:

"""
_NOTHING = "\n## Measured\n\nNothing yet: `python -m bench.learning --save bench/results/learning.json`.\n"


def measured() -> str:
    """The section: tables of the results, or a line that there are none."""
    found = result("learning.json")
    parts = [_NOTHING] if found is None else _learning(found)
    without = result("ablation.json")
    if without is not None:
        rows = [[*row, _worse(without["arms"][row[0]][row[1]])] for row in report.rows(without["arms"])]
        parts += [_ABLATION.format(**_named(without)), table((*report.COLUMNS, "worse"), rows)]
    costs = result("defects.json")
    if costs is not None:
        parts += [_COSTS.format(**_named(costs)), _table(costs["arms"])]
    return "".join(parts)


def _learning(found: Mapping[str, Any]) -> list[str]:
    arms = found["arms"]
    apart = {**plan.BEYOND, **plan.RATES_OF_OURS}
    stops = " and ".join(map(str, report.SHOWN))
    parts = [
        _HEAD.format(**_named(found), stops=stops),
        _table(shown := {name: entry for name, entry in arms.items() if name not in apart}),
        f"\n{_explained(shown)}\n",
        _rates(found["learning_rates"]),
    ]
    lines = goals.rows(arms)
    if lines:
        met, missed = (sum(row[-1] == found for row in lines) for found in (MET, MISSED))
        counts = {"met": met, "missed": missed, "rest": len(lines) - met - missed, "all": len(lines)}
        parts += [_GOALS.format(**counts), table(goals.COLUMNS, lines)]
    for heading, names in ((_BEYOND, plan.BEYOND), (_OTHER_RATES, plan.RATES_OF_OURS)):
        chosen = {name: entry for name, entry in arms.items() if name in names}
        if chosen:
            curve = found.get("curve_beyond")
            picture = f"![Curves](../bench/results/{curve})\n\n" if curve else ""
            texts = {"arms": _explained(chosen), "picture": picture, "default": plan.default_rate(plan.OURS)}
            parts += [heading.format(**texts), _table(chosen)]
        for arm, worst in found.get("worst_of_several", {}).items() if heading is _BEYOND else ():
            parts.append("\n" + _WORST.format(arm=arm, style=interval_text(worst["style"])))
    return parts


def _named(found: Mapping[str, Any]) -> dict[str, Any]:
    return {name: found[name] for name in ("command", "date", "commit", "seeds", "curve")}


def _rates(chosen: plan.Rates) -> str:
    people: Sequence[str] = list(dict.fromkeys(person for rates in chosen.values() for person in rates))
    lines = [
        f"| `{name}` | {' | '.join(f'{rates[person]:g}' if person in rates else '–' for person in people)} |"
        for name, rates in chosen.items()
    ]
    if not lines:
        return ""
    return _RATES.format(people=" | ".join(people), dashes="---|" * len(people), rates="\n".join(lines))


def _explained(arms: Mapping[str, Any]) -> str:
    """The texts of these arms, in lines of a page's width."""
    return textwrap.fill(" ".join(text for name, text in _ARMS.items() if name in arms), WIDTH, break_on_hyphens=False)


def _worse(entry: Mapping[str, Any]) -> str:
    """The measures whose difference to the control is below 0 by more than its interval."""
    found = []
    for at in report.SHOWN:
        for name in report.MEASURES:
            mean, half = (entry.get(str(at)) or {}).get(f"{name}_difference") or (0.0, None)
            if half is not None and mean + half < 0:
                found.append(f"{name} @{at}")
    return ", ".join(found) or "–"


def _table(arms: Mapping[str, Any]) -> str:
    return table(report.COLUMNS, report.rows(arms))


SECTION = Section("methods.md", "learning", measured)

if __name__ == "__main__":
    SECTION.write()
