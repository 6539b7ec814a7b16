"""Write the measured part of docs/environments.md from bench/results: `python -m bench.environments.page`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.environments import report
from bench.environments.plan import ENVIRONMENTS, STEP_REWARDS
from bench.pages import MET, Section, result, table

NAME = "environments.json"
_NOTHING = f"\nNothing yet: `python -m bench.environments --save bench/results/{NAME}`.\n"
_HEAD = """
`{command}`
({date}; commit {commit:.8}; shipped policy, settings of `openclaw-rl env train`). Held-out tasks are attempted once
before and once after at most {episodes} attempts; rates are those of all seeds together, in brackets with their 95 %
interval, which does not say how much seeds differ. In `trained` the rule judge's votes on each step have the weight
{step_rewards} (`step_rewards`), and in `outcome_only` none. `placebo` is `outcome_only` with the outcomes of each group
permuted, and `control` does not train. Word problems and plain style are those of the simulated student, before and
after.

"""
_GOALS = "\n{met} of {all} goals are met.\n\n"
_STEPS = {
    True: "On `{name}`, step rewards gain over outcomes alone.\n",
    False: "On `{name}`, no gain of step rewards over outcomes alone shows.\n",
}


def measured() -> str:
    """The section: tables of the result, or a line that there is none."""
    saved = result(NAME)
    if saved is None:
        return _NOTHING
    found: Mapping[str, Any] = {name: saved[name] for name in ENVIRONMENTS if name in saved}
    episodes = max(entry["episodes"] for entry in found.values())
    named = {name: saved[name] for name in ("command", "date", "commit")}
    goals = report.goals(found)
    return "".join(
        [
            _HEAD.format(**named, episodes=episodes, step_rewards=STEP_REWARDS),
            table(report.COLUMNS, report.rows(found)),
            _GOALS.format(met=sum(row[-1] == MET for row in goals), all=len(goals)) if goals else "",
            table(report.GOAL_COLUMNS, goals) if goals else "",
            *_step_rewards(found),
        ]
    )


def _step_rewards(found: Mapping[str, Any]) -> list[str]:
    lines = []
    for name, entry in found.items():
        arms = entry["arms"]
        if report.TRAINED in arms and "outcome_only" in arms:
            gains = report.separate(arms[report.TRAINED], arms["outcome_only"])
            lines.append("\n" + _STEPS[bool(gains)].format(name=name))
    return lines


SECTION = Section("environments.md", "environments", measured)

if __name__ == "__main__":
    SECTION.write()
