"""The cells of the grid and of the search for learning rates, and the choice among those."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from bench.learning.cell import PROBED, SPLIT_SEEDS, Cell, Result
from openclaw_rl.shared.settings.method_defaults import method_defaults
from openclaw_rl.shared.settings.settings import Settings as ServiceSettings

PERSONAS = ("student", "ta", "teacher")
METHODS = ("binary", "opd", "combined", "topk", "topk-select", "rehearse")
ARMS = ("control", "placebo", "irrelevant", *METHODS)
NOISE = ("wrong-5", "wrong-15", "wrong-30", "changes-mind")
EXPLAINED = ("placebo-baseline", "placebo-slow")
"""Arms that explain others: a placebo may drift because the mean of its verdicts is not 0, or because its steps are as
long as those of real verdicts.
"""
STUDENT_ONLY = (*NOISE, *EXPLAINED)
"""Arms outside the comparison, with the student persona only."""
RATES = (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2)
"""Learning rates of the search, the same for every method."""

SEARCHED_INTERACTIONS = 128
SEARCH_SEEDS = 2
TURNS_ABOUT = 40

DEPENDS_ON = (
    *("method", "batch_size", "grad_accumulation", "epochs", "early_stop", "learning_rate", "lr_schedule"),
    *("beta1", "beta2", "weight_decay", "clip_grad", "clip_low", "clip_high", "ratio_cap", "w_rl", "w_opd", "w_anchor"),
    *("teacher", "max_hints", "rehearsals", "anchors", "hint_selection", "topk", "select_k", "lora_rank", "lora_alpha"),
)

Settings = dict[str, str | int | float | bool]

COMMON: Settings = {"guard": False}
"""Settings of every cell: methods are compared without the guard (see `bench.guard`)."""


def batch_of(method: str) -> int:
    """Judged turns per step of a method as published."""
    return int(method_defaults(method).get("batch_size", 8))


def arm_settings(arm: str, rates: Mapping[str, float]) -> Settings:
    """The settings of an arm; the method's defaults apply to the rest."""
    return resolved(COMMON | _of_arm(arm, rates))


def resolved(settings: Settings) -> Settings:
    """Add every default that affects a result, so that a cell with other defaults gets another key."""
    complete = ServiceSettings(**settings)
    return {name: getattr(complete.learning, name) for name in DEPENDS_ON} | settings


def _of_arm(arm: str, rates: Mapping[str, float]) -> Settings:
    if arm == "control":
        return {"train": False}
    if arm == "placebo":
        return _of_arm("binary", rates) | {"judge": "openclaw_rl.evaluation.judges:Placebo"}
    if arm == "placebo-baseline":
        return _of_arm("placebo", rates) | {"baseline": "batch"}
    if arm == "placebo-slow":
        return _of_arm("placebo", rates) | {"learning_rate": rates["binary"] / 4}
    if arm == "irrelevant":
        return _of_arm("rehearse", rates) | {"judge": "openclaw_rl.evaluation.judges:Irrelevant"}
    if arm == "changes-mind":
        return _of_arm("rehearse", rates)
    if arm in NOISE:
        return _of_arm("rehearse", rates) | {"judge": f"bench.learning.judges:Wrong{arm.rpartition('-')[2]}"}
    return {"method": arm, "learning_rate": rates[arm]}


def method_of(arm: str) -> str:
    """The method from which an arm takes its batch size and learning rate."""
    if arm in METHODS:
        return arm
    return "binary" if arm.startswith("placebo") else "rehearse"


def grid(
    arms: Sequence[str],
    personas: Sequence[str],
    seeds: int,
    interactions: int,
    rates: Mapping[str, float],
    **options: Any,
) -> list[Cell]:
    """Cells of every arm, persona and seed; seeds outermost, so that partial results are comparable."""
    return [
        Cell(
            arm=arm,
            persona=persona,
            seed=seed,
            interactions=interactions,
            lanes=batch_of(method_of(arm)),  # every batch is one round
            settings=arm_settings(arm, rates),
            turns_about=TURNS_ABOUT if arm == "changes-mind" else 0,
            **options,
        )
        for seed in range(1, seeds + 1)
        for persona in personas
        for arm in arms
        if arm not in STUDENT_ONLY or persona == "student"
    ]


def search(
    methods: Sequence[str], *, seeds: int = SEARCH_SEEDS, interactions: int = SEARCHED_INTERACTIONS
) -> list[Cell]:
    """Cells of the search: the same for each method, with the student and other problems and seeds than the grid."""
    return [
        Cell(
            arm=f"search-{method}",
            persona="student",
            seed=SPLIT_SEEDS["search"] + seed,
            interactions=interactions,
            lanes=batch_of(method),
            problems=60,
            glances=40,
            settings=resolved(COMMON | {"method": method, "learning_rate": rate}),
        )
        for seed in range(1, seeds + 1)
        for method in methods
        for rate in RATES
    ]


def worth(result: Result) -> float:
    """Mean of style times accuracy over the full probes; a product, so that neither can replace the other."""
    return fmean(point.style * point.accuracy for point in result.points if point.interactions in PROBED)


def best_rates(results: Sequence[Result]) -> tuple[dict[str, float], dict[str, Any]]:
    """Return the best rate of each method, and the mean worth over seeds by method and rate."""
    found: dict[str, dict[float, list[float]]] = {}
    for result in results:
        method, rate = str(result.cell.settings["method"]), float(result.cell.settings["learning_rate"])
        found.setdefault(method, {}).setdefault(rate, []).append(worth(result))
    means = {method: {rate: fmean(values) for rate, values in sorted(rates.items())} for method, rates in found.items()}
    best = {method: max(rates, key=rates.__getitem__) for method, rates in means.items()}
    return best, {
        method: {f"{rate:g}": round(value, 4) for rate, value in rates.items()} for method, rates in means.items()
    }
