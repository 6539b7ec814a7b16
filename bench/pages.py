"""The measured parts of pages in docs/, written from bench/results: `make docs`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openclaw_rl.evaluation.statistics import Interval

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
MET, MISSED = "met", "missed"
"""Whether a result reaches a goal."""


@dataclass(frozen=True)
class Section:
    """The part of the page `docs/<page>` between the comments `<!-- name -->` and `<!-- /name -->`."""

    page: str
    name: str
    measured: Callable[[], str]

    @property
    def path(self) -> Path:
        return ROOT / "docs" / self.page

    def placed(self, text: str) -> str:
        """The text of the page with the part as it is measured now. `ValueError` without the comments."""
        begin, end = f"<!-- {self.name} -->", f"<!-- /{self.name} -->"
        head, found, rest = text.partition(begin)
        _, ended, tail = rest.partition(end)
        if not (found and ended):
            raise ValueError(f"{self.path} has no {begin} with {end} after it")
        return f"{head}{begin}{self.measured()}{end}{tail}"

    def write(self) -> None:
        """Write the page."""
        self.path.write_text(self.placed(self.path.read_text("utf-8")), "utf-8")
        print(f"wrote {self.path}")


def result(name: str) -> dict[str, Any] | None:
    """The committed result `bench/results/<name>`, `None` if there is none yet."""
    path = RESULTS / name
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def interval_text(value: Sequence[Any] | None) -> str:
    """A mean and its interval, of `statistics.spread`."""
    return "–" if value is None else str(Interval(*value)).replace(" ", "")


def met(reached: bool | None) -> str:
    """The word for a goal that is `reached`; `None` if that was not measured."""
    return "not measured" if reached is None else MET if reached else MISSED
