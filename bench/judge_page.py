"""Write the measured part of docs/judging.md from bench/results: `python -m bench.judge_page`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import judge

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "judging.md"
RESULT = ROOT / "bench" / "results" / "judge.json"
BEGIN, END = "<!-- judges -->", "<!-- /judges -->"

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
    if not RESULT.is_file():
        return "\nNothing yet: `python -m bench.judge --save bench/results/judge.json`.\n"
    found = json.loads(RESULT.read_text(encoding="utf-8"))
    judges: Mapping[str, Any] = found["judges"]
    languages = sorted({language for figures in judges.values() for language in figures["by_language"]})
    by_language = [
        [name, *(f"{figures['by_language'][language]:.2f}" for language in languages)]
        for name, figures in judges.items()
    ]
    return "".join(
        [
            _HEAD.format(**{name: found[name] for name in ("command", "date", "held_out")}),
            _table(judge.COLUMNS, judge.rows(judges)),
            _LANGUAGES,
            _table(("judge", *languages), by_language),
        ]
    )


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    lines += [f"| {' | '.join([f'`{name}`', *cells])} |" for name, *cells in rows]
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """Replace the measured part of the page."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}{measured()}{END}{tail}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
    print(f"wrote {PAGE}")
