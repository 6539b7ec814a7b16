"""Write the measured part of docs/judging.md from bench/results: `python -m bench.judge_page`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench import judge
from bench.pages import Section, result, table

_HEAD = """
`{command}`

{date}, {held_out} reactions. Shares of all reactions: verdict and label are equal (accuracy), -1 or 1 where the label
is another (false negative, false positive), the judge says that it does not understand, or it fails to give a score.

"""
_LANGUAGES = """
Accuracy by language:

"""


def measured() -> str:
    """The section: tables of the result, or a line that there is none."""
    found = result("judge.json")
    if found is None:
        return "\nNothing yet: `python -m bench.judge --save bench/results/judge.json`.\n"
    judges: Mapping[str, Any] = found["judges"]
    languages = sorted({language for figures in judges.values() for language in figures["by_language"]})
    by_language = [
        [name, *(f"{figures['by_language'][language]:.2f}" for language in languages)]
        for name, figures in judges.items()
    ]
    return "".join(
        [
            _HEAD.format(**{name: found[name] for name in ("command", "date", "held_out")}),
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
