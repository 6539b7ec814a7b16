"""The figures of the guard bench, from versions as the service reports them."""

from __future__ import annotations

from typing import Any

from bench.guard import Story, result
from openclaw_rl.evaluation.probe import Probe

REPORT: dict[str, Any] = {
    "passed": True,
    "reason": "",
    "kl_parent": 0.01,
    "kl_base": 0.05,
    "accepted": {"answers": 16, "drop": 0.002},
    "answers": {"asked": 16, "candidate": {"flawed": 1}, "parent": {"flawed": 0}},
    "rewards": {"against": 1, "agreed": 4, "seconds": 0.25},
    "seconds": 0.5,
}


def story(seed: int, *, rejected: bool = True) -> Story:
    found = Story(seed, "rehearse")
    found.note({"number": 1, "state": "retired", "guard": REPORT, "metrics": {"seconds": 2.0}})
    found.note({"number": 2, "state": "rejected", "guard": {"reason": "it stutters"}, "metrics": {}})
    found.probes = {
        when: Probe(count=10, style=0.9, accuracy=1.0, forms={})
        for when in ("base", *(f"{when} {kind}" for kind in ("inverted", "gibberish") for when in ("before", "after")))
    }
    poison = {"version": 3, "rejected": rejected, "reason": "upside down", "live_stays": rejected, "why": rejected}
    found.poisons = {"inverted": poison, "gibberish": poison}
    return found


def test_rejections_and_figures_are_counted_over_seeds() -> None:
    found = result([story(1), story(2, rejected=False)])
    assert found["seeds"] == 2
    figures = found["methods"]["rehearse"]
    assert figures["versions"] == 4
    assert figures["false_rejections"] == [f"seed {seed}, version 2: it stutters" for seed in (1, 2)]
    poison = figures["poisons"]["inverted"]
    assert (poison["batches"], poison["rejected"], poison["live_stays"], poison["why"]) == (2, 1, False, False)
    assert poison["style"] == [0.9, 0.9]
    assert figures["guard_seconds"] == {"mean": 0.75, "max": 0.75} and figures["step_seconds"]["mean"] == 2.0
    assert figures["figures"]["against_less_agreed"] == [-3, -3] and figures["figures"]["accepted_drop"] == [0.002] * 2


def test_one_line_says_what_became_of_the_poison() -> None:
    assert "inverted rejected (upside down)" in story(1).line()
    assert "NOT REJECTED" in story(1, rejected=False).line()
