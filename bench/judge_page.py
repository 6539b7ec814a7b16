"""Write the measured part of docs/judging.md from bench/results: `python -m bench.judge_page`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench import judge
from bench.pages import Section, result, table

RULES, SMOLLM2 = "judge.json", "judge_smollm2.json"
"""Results, each of a run of its own: the rules are measured again whenever they change."""

_RUN = """
`{command}`, {date}
"""
_HEAD = """
{held_out} reactions. Shares of all reactions: verdict and label are equal (accuracy), -1 or 1 where the label
is another (false negative, false positive), the judge says that it does not understand, or it fails to give a score.

"""
_LANGUAGES = """
Accuracy by language:

"""


def measured() -> str:
    """The section: tables of the result, or a line that there is none."""
    runs = [found for name in (RULES, SMOLLM2) if (found := result(name)) is not None]
    if not runs:
        return f"\nNothing yet: `python -m bench.judge --judge rules --held-out --save bench/results/{RULES}`.\n"
    judges: Mapping[str, Any] = {name: figures for found in runs for name, figures in found["judges"].items()}
    languages = sorted({language for figures in judges.values() for language in figures["by_language"]})
    by_language = [
        [name, *(f"{figures['by_language'][language]:.2f}" for language in languages)]
        for name, figures in judges.items()
    ]
    return "".join(
        [
            *(_RUN.format(command=found["command"], date=found["date"]) for found in runs),
            _HEAD.format(held_out=runs[0]["held_out"]),
            table(judge.COLUMNS, _named(judge.rows(judges))),
            _LANGUAGES,
            table(("judge", *languages), _named(by_language)),
        ]
    )


def _named(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    return [[f"`{name}`", *cells] for name, *cells in rows]


SECTION = Section("judging.md", "judges", measured)

if __name__ == "__main__":
    SECTION.write()
