"""Write the measured part of docs/methods.md from bench/results: `python -m bench.learning.page`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.learning import plan, report
from bench.pages import Section, result, table

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
    found = result("learning.json")
    if found is None:
        return "\n## Measured\n\nNothing yet: `python -m bench.learning --save bench/results/learning.json`.\n"
    chosen = ", ".join(f"`{method}` {rate:g}" for method, rate in found["learning_rates"].items())
    parts = [
        _HEAD.format(**{name: found[name] for name in ("command", "date", "seeds", "curve")}),
        _table({**found["arms"], **found.get("noise", {}), **found.get("explained", {})}),
        _NOTES.format(turn=plan.TURNS_ABOUT, rates=chosen),
    ]
    costs = result("ablation.json")
    if costs is not None:
        parts += [_COSTS.format(command=costs["command"]), _table(costs["arms"])]
    return "".join(parts)


def _table(arms: Mapping[str, Any]) -> str:
    return table(report.COLUMNS, report.rows(arms))


SECTION = Section("methods.md", "learning", measured)

if __name__ == "__main__":
    SECTION.write()
