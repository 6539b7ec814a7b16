"""Compare a policy folder with the one that ships: the figures of the card, then start rates.

    python -m bench.shipped_policy.compare DIR [--problems 400] [--tasks 100] [--seed 0]

A figure of the folder is `inside` the interval of the shipped policy's, `overlaps` it with its own, or is `apart` from
it. Figures are taken from a folder's `card.json` where it has them for as many problems, else measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from bench.shipped_policy import POLICY
from bench.shipped_policy.examples import Renderer
from bench.shipped_policy.measure import measure
from bench.shipped_policy.start_rates import FAMILIES, start_rates
from openclaw_rl.cli.tables import console

Share = Mapping[str, float]


def shares(figures: Mapping[str, Any], name: str = "") -> Iterator[tuple[str, Share]]:
    """Every share in a tree of figures, with the path to it."""
    if "share" in figures:
        yield name, figures
        return
    for key, inner in figures.items():
        yield from shares(inner, f"{name}.{key}" if name else key)


def verdict(before: Share, after: Share) -> str:
    """The place of a figure with regard to another's interval."""
    if before["low"] <= after["share"] <= before["high"]:
        return "inside"
    return "apart" if after["low"] > before["high"] or after["high"] < before["low"] else "overlaps"


def figures(folder: Path, problems: int, seed: int) -> dict[str, Any]:
    """The figures of a policy folder."""
    path = folder / "card.json"
    kept = json.loads(path.read_text(encoding="utf-8"))["figures"] if path.exists() else None
    if kept is not None and kept["unhinted"]["right"]["of"] == problems:
        return dict(kept)
    return measure(folder, Renderer(folder), problems, seed)


def table(before: Mapping[str, Share], after: Mapping[str, Share]) -> Table:
    """A row for each figure that both have."""
    found = Table("figure", "shipped", "new", "")
    for name in (name for name in after if name in before):
        found.add_row(name, _text(before[name]), _text(after[name]), verdict(before[name], after[name]))
    return found


def _text(found: Share) -> str:
    return f"{found['share']:.3f} ({found['low']:.3f} to {found['high']:.3f})"


def main() -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    parser = argparse.ArgumentParser(description="Compares a policy folder with the one that ships.")
    parser.add_argument("policy", type=Path)
    parser.add_argument("--problems", type=int, default=400)
    parser.add_argument("--tasks", type=int, default=100, help="tasks of each family; 0 measures no start rates")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    out = console(stderr=True, width=140)
    cards = [dict(shares(figures(folder, chosen.problems, chosen.seed))) for folder in (POLICY, chosen.policy)]
    out.print(table(*cards))
    rates: list[dict[str, dict[str, float]]] = []
    if chosen.tasks:
        for folder in (POLICY, chosen.policy):
            rates.append(asyncio.run(start_rates(folder, FAMILIES, tasks=chosen.tasks, seed=chosen.seed)))
        out.print(table(*rates))
    names = ("shipped", "new")
    print(
        json.dumps(
            {"figures": dict(zip(names, cards, strict=True)), "start_rates": dict(zip(names, rates, strict=False))}
        )
    )


if __name__ == "__main__":
    main()
