"""Write the measured part of docs/methods.md from bench/results: `python -m bench.learning.page`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.learning import plan, report

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "methods.md"
RESULTS = ROOT / "bench" / "results"
BEGIN, END = "<!-- learning -->", "<!-- /learning -->"


_HEAD = """
## Measured

`{command}` ({date}; shipped policy, held-out tasks; means ± 95 % intervals over {seeds}
seeds). The same simulated people talk to every arm. One search, on other problems and seeds, chose each method's
learning rate. The guard is off: the table compares the methods alone. Columns: style and accuracy after N
reactions, reactions until the style reaches 0.8, KL from the base, and escape.

![Curves](../bench/results/{curve})

"""
_NOTES = """
`placebo` is `binary` with every verdict taken from another turn. `placebo-baseline` also subtracts the mean of each
batch from the rewards, and `placebo-slow` has a quarter of the learning rate. `irrelevant` is `rehearse` with hints
unrelated to the answers. `wrong-N` is `rehearse` with N % of the judgements inverted, where inverted praise gets a
misleading hint. In `changes-mind` the person wants the opposite style after {turn} interactions, and the style column
then measures the new wish. KL is in nats per token. Escape is the share of replies in neither style.

Learning rates: {rates}.
"""
_COSTS = """
### Cost of known defects

`{command}`, on `combined`:

"""


def measured() -> str:
    """The section: tables of the results, or a line that there are none."""
    path = RESULTS / "learning.json"
    if not path.is_file():
        return "\n## Measured\n\nNothing yet: `python -m bench.learning --save bench/results/learning.json`.\n"
    found = json.loads(path.read_text(encoding="utf-8"))
    chosen = ", ".join(f"`{method}` {rate:g}" for method, rate in found["learning_rates"].items())
    parts = [
        _HEAD.format(**{name: found[name] for name in ("command", "date", "seeds", "curve")}),
        _table({**found["arms"], **found.get("noise", {}), **found.get("explained", {})}),
        _NOTES.format(turn=plan.TURNS_ABOUT, rates=chosen),
    ]
    ablated = RESULTS / "ablation.json"
    if ablated.is_file():
        costs = json.loads(ablated.read_text(encoding="utf-8"))
        parts += [_COSTS.format(command=costs["command"]), _table(costs["arms"])]
    return "".join(parts)


def _table(arms: Mapping[str, Any]) -> str:
    lines = [f"| {' | '.join(report.COLUMNS)} |", "|" + "---|" * len(report.COLUMNS)]
    lines += [f"| {' | '.join(row)} |" for row in report.rows(arms)]
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """Replace the measured part of the page."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}{measured()}{END}{tail}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
    print(f"wrote {PAGE}")
