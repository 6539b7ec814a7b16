"""The arms, by the parts of a run, and their cells. The most informative parts come first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

from bench.learning import ablation, defects
from bench.learning.cell import TOGETHER, Cell
from openclaw_rl.learner.methods import METHODS as RECIPES
from openclaw_rl.shared.objective.early_stop import stops_early
from openclaw_rl.shared.settings.method_defaults import METHODS, method_defaults
from openclaw_rl.shared.settings.settings import Settings as ServiceSettings

PERSONAS = ("student", "ta", "teacher")
CONTROL = "control"
OURS = "rehearse"
TURNS_ABOUT = 40
PASSES = "-passes"
"""Ends the name of a published method that gets several passes and an early stop, as `rehearse` has them."""

Settings = dict[str, str | int | float | bool]
Rates = Mapping[str, Mapping[str, float]]
"""The learning rate of each method and person."""

COMMON: Settings = {"guard": False}
"""Settings of every cell but those with the guard: methods are compared without it (see `bench.guard`)."""
EXTRAS: Settings = {"epochs": 8, "early_stop": 0.05}
"""The passes and the early stop of `rehearse`."""


class LearningArm(msgspec.Struct, frozen=True, kw_only=True):
    """The difference of an arm from the shipped service: `settings`, and `changes` of its cells. It has the batch size
    of `method`, and `rate_share` of the rate that the search found for `searched`, or without `searched` of the
    default. It is compared with the arm `control`.
    """

    method: str = OURS
    searched: str = ""
    rate_share: float = 1.0
    settings: Settings = {}
    people: tuple[str, ...] = PERSONAS
    changes: dict[str, Any] = {}
    control: str = CONTROL


@cache
def default_rate(method: str) -> float:
    """The shipped learning rate of a method."""
    return ServiceSettings(method=method).learning.learning_rate


def batch_of(method: str) -> int:
    """Judged turns per step of a method as published."""
    return int(method_defaults(method).get("batch_size", 8))


def _may_stop_early(method: str) -> bool:
    return stops_early(RECIPES[method].recipe(ServiceSettings(method=method, **EXTRAS).learning))


def _student(**fields: Any) -> LearningArm:
    return LearningArm(people=("student",), **fields)


def _wrong(share: int) -> LearningArm:
    return _student(settings={"judge": f"bench.learning.judges:Wrong{share}"})


PUBLISHED = tuple(name for name in METHODS if name != OURS)
_VARIANTS: dict[str, tuple[str, Settings]] = {name: (name, {}) for name in METHODS} | {
    name + PASSES: (name, EXTRAS) for name in PUBLISHED if _may_stop_early(name)
}
SEARCHED = tuple(_VARIANTS)
"""The methods whose rates are searched: also those with passes."""

FLAT_RATES = (1e-3, 4e-3, 8e-3)
"""Rates at which `rehearse` is measured, next to its default between them."""

LONG: dict[str, Any] = {"preamble": 45, "interactions": 128}
"""Instructions of about 500 tokens before each question. With much longer ones the shipped policy answers nothing
right, so the tokens of a step have an eighth of their usual limit: to that, the prompts are like ones of 4,300 tokens.
"""
LONG_LIMIT: Settings = {"max_sample_tokens": 4096}

SHIPPED = {
    CONTROL: LearningArm(settings={"train": False}),
    OURS: LearningArm(),
    "rehearse-guard": LearningArm(settings={"guard": True, "guard_max_kl": 0.5}),
    "irrelevant": LearningArm(settings={"judge": "openclaw_rl.evaluation.judges:Irrelevant"}),
}
BEYOND = {
    "three-people": LearningArm(people=(TOGETHER.join(PERSONAS),), changes={"lanes": 3, "interactions": 72}),
    "sparse-20": LearningArm(people=("student", "ta"), changes={"reacts": 0.2}),
    "sparse-10": LearningArm(people=("student", "ta"), changes={"reacts": 0.1}),
    "missed-half": LearningArm(people=("student", "ta"), settings={"judge": "bench.learning.judges:MissesHalf"}),
    "changes-mind-2": _student(changes={"turns_about": TURNS_ABOUT, "phrases": 2}),
    "changes-mind": _student(changes={"turns_about": TURNS_ABOUT}),
    "long-control": _student(settings={"train": False}, changes=LONG, control="long-control"),
    "long-prompts": _student(settings=LONG_LIMIT, changes={**LONG, "turns_about": 24}, control="long-control"),
    "wrong-30": _wrong(30),
    "wrong-15": _wrong(15),
    "wrong-5": _wrong(5),
}
PLACEBO: Settings = {"judge": "openclaw_rl.evaluation.judges:Placebo"}
RATES_OF_OURS = {f"rehearse-{rate:g}": LearningArm(settings={"learning_rate": rate}) for rate in FLAT_RATES}
COMPARED = {
    **{name: LearningArm(method=_VARIANTS[name][0], searched=name, settings=_VARIANTS[name][1]) for name in _VARIANTS},
    "placebo": LearningArm(method="binary", searched="binary", settings=PLACEBO),
    "placebo-baseline": LearningArm(method="binary", searched="binary", settings={**PLACEBO, "baseline": "batch"}),
    "placebo-slow": _student(method="binary", searched="binary", settings=PLACEBO, rate_share=0.25),
}
COMPARED = {"rehearse-searched" if name == OURS else name: arm for name, arm in COMPARED.items()}
ABLATION = {
    name: LearningArm(people=("student", "ta"), settings=settings, control=ablation.WHOLE)
    for name, settings in ablation.ARMS.items()
}
_COMBINED = {name: value for name, value in method_defaults("combined").items() if name != "learning_rate"}
DEFECTS = {
    name: _student(
        method="combined",
        searched="combined",
        settings={**_COMBINED, "max_version_lag": defects.LATE + 2, **settings},
        control="aligned",
    )
    for name, settings in defects.DEFECTS.items()
}
PARTS: dict[str, dict[str, LearningArm]] = {
    "shipped": SHIPPED,
    "ablation": ABLATION,
    "beyond": BEYOND,
    "rates": RATES_OF_OURS,
    "search": {},
    "compared": COMPARED,
    "defects": DEFECTS,
}
"""The parts of a run in their order; `search` has no arms."""

ARMS = {name: arm for arms in PARTS.values() for name, arm in arms.items()}


def arm_settings(name: str, rate: float) -> Settings:
    """The settings of an arm; the method's defaults apply to the rest."""
    arm = ARMS[name]
    if not arm.settings.get("train", True):
        return COMMON | arm.settings
    return COMMON | {"method": arm.method, "learning_rate": rate} | arm.settings


def method_under(name: str) -> str:
    """The method of a name of `SEARCHED`."""
    return _VARIANTS[name][0]


def search_settings(name: str, rate: float) -> Settings:
    """The settings of a method of `SEARCHED` at a rate."""
    method, extras = _VARIANTS[name]
    return COMMON | {"method": method, "learning_rate": rate} | extras


def grid(
    names: Sequence[str],
    personas: Sequence[str],
    *,
    seeds: int,
    interactions: int,
    rates: Rates | None = None,
    **options: Any,
) -> list[Cell]:
    """The cells of these arms: seeds outermost, so that partial results are comparable. Arms at a searched rate that
    `rates` lacks for a person are left out.
    """
    found = []
    for seed in range(1, seeds + 1):
        for name in names:
            arm = ARMS[name]
            for person in arm.people:
                if not set(person.split(TOGETHER)) <= set(personas):
                    continue
                searched = (rates or {}).get(arm.searched, {}).get(person)
                rate = searched if arm.searched else default_rate(arm.method)
                if rate is None:
                    continue
                own: dict[str, Any] = {"lanes": batch_of(arm.method), **options, **arm.changes}
                own["interactions"] = min(interactions, own.get("interactions", interactions))
                settings = arm_settings(name, arm.rate_share * rate)
                cell = Cell(arm=name, persona=person, seed=seed, settings=settings, **own)
                found.append(cell.with_code())
    return found
