"""The cells of the arms, and the search for learning rates."""

from __future__ import annotations

from typing import Any

import pytest

from bench.cells import code_digest
from bench.learning import plan, rates
from bench.learning.cell import SPLIT_SEEDS, Cell, Result
from openclaw_rl.shared.settings.method_defaults import METHODS
from openclaw_rl.shared.settings.settings import Settings
from tests.bench.learning.cells import result

RATES = {name: dict.fromkeys(plan.PERSONAS, 1e-3) for name in plan.SEARCHED}


@pytest.fixture(autouse=True)
def one_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_digest, "digest", " ".join)


def cells(part: str, **changes: Any) -> list[Cell]:
    sizes: dict[str, Any] = {"seeds": 2, "interactions": 256, "rates": RATES}
    return plan.grid(list(plan.PARTS[part]), plan.PERSONAS, **(sizes | changes))


def service(one: Cell) -> Settings:
    return Settings(**one.settings)  # type: ignore[arg-type]


def test_every_arm_has_settings_that_a_service_takes_and_rounds_of_its_batch() -> None:
    for part in plan.PARTS:
        for one in cells(part):
            learning = service(one).learning
            assert one.lanes == (3 if one.arm == "three-people" else learning.batch_size) or not learning.train
            assert service(one).guard.enabled is (one.arm == "rehearse-guard")
            assert one.code and one.stops[-1] == one.interactions


def test_every_method_is_compared_by_name_with_each_person_at_its_own_rate() -> None:
    chosen = {name: {person: 1e-3 * (1 + number) for number, person in enumerate(plan.PERSONAS)} for name in RATES}
    found = cells("compared", rates=chosen, seeds=1)
    arms = {one.arm for one in found}
    assert arms >= {"rehearse-searched", "placebo", "placebo-baseline", *METHODS} - {"rehearse"}
    assert {one.settings["learning_rate"] for one in found if one.persona == "teacher"} == {3e-3}
    slow = {one.persona: one.settings["learning_rate"] for one in found if one.arm == "placebo-slow"}
    assert slow == {"student": 0.25e-3}, "a quarter, for the student alone"
    assert cells("compared", rates={}) == [], "no rate, no cell"


def test_a_method_that_may_stop_early_is_compared_with_passes_too() -> None:
    assert "topk-passes" in plan.SEARCHED and "binary-passes" not in plan.SEARCHED
    (one,) = [one for one in cells("compared", seeds=1) if one.arm == "topk-passes" and one.persona == "ta"]
    learning = service(one).learning
    assert (learning.method, learning.epochs, learning.early_stop, one.lanes) == ("topk", 8, 0.05, 4)


def test_parts_of_the_recipe_are_taken_away_one_by_one() -> None:
    whole, *others = [service(one).learning for one in cells("ablation", seeds=1) if one.persona == "ta"]
    changed = [
        {name for name in type(whole).model_fields if getattr(one, name) != getattr(whole, name)} for one in others
    ]
    assert changed == [
        {"anchors"},
        {"rehearsals"},
        {"method", "custom_rollout"},
        {"max_hints"},
        {"epochs"},
        {"early_stop"},
    ]


def test_defects_have_the_defaults_of_the_published_method_whatever_their_hook() -> None:
    found = {one.arm: service(one).learning for one in cells("defects", seeds=1)}
    assert {one.batch_size for one in found.values()} == {16}
    assert {name: one.epochs for name, one in found.items() if one.epochs > 1} == {"epochs": 6, "epochs-uncorrected": 6}
    assert {one.rehearsals for one in found.values()} == {0}


def test_equal_work_of_two_arms_is_one_cell() -> None:
    shipped = next(one for one in cells("shipped") if one.arm == "rehearse")
    whole = next(one for one in cells("ablation") if one.arm == "whole")
    assert shipped.key == whole.key
    default = {"rehearse": {"student": plan.default_rate("rehearse")}}
    searched = next(one for one in cells("compared", rates=default) if one.arm == "rehearse-searched")
    assert searched.key == shipped.key


def searched(worth: dict[float, float], persona: str = "ta", accuracy: float = 1.0) -> list[Result]:
    return [
        result(one, {256: worth[float(one.settings["learning_rate"])]}, accuracy)
        for one in rates.first_round(["topk"], [persona])
    ]


def test_rates_are_searched_for_each_person_on_other_seeds_with_the_same_rates_for_all() -> None:
    found = rates.first_round(plan.SEARCHED, plan.PERSONAS)
    assert min(one.seed for one in found) > SPLIT_SEEDS["search"] > 1000
    assert len({one.key for one in found}) == len(found)
    tried = {
        (name, person): {one.settings["learning_rate"] for one in found if (one.arm, one.persona) == (name, person)}
        for name in plan.SEARCHED
        for person in plan.PERSONAS
    }
    assert set(map(frozenset, tried.values())) == {frozenset(rates.RATES)}
    assert {tuple(one.stops) for one in found} == {(256,)}, "the last point alone"


def test_the_best_rates_of_the_first_round_have_a_second_seed_and_their_mean_decides() -> None:
    worth = dict(zip(rates.RATES, (0.1, 0.2, 0.8, 0.9, 0.7, 0.3), strict=True))
    first = searched(worth)
    second = rates.second_round(first)
    assert [one.settings["learning_rate"] for one in second] == [4e-3, 8e-3, 1.6e-2]
    assert not {one.seed for one in second} & {one.cell.seed for one in first}
    assert rates.best(first) == {}, "not before the second round"
    again = [result(one, {256: 0.9 if one.settings["learning_rate"] == 4e-3 else 0.5}) for one in second]
    assert rates.best([*first, *again]) == {"topk": {"ta": 4e-3}}
    assert rates.table([*first, *again])["topk"]["ta"]["0.004"] == [0.8, 0.9]
    assert rates.second_round(first[1:]) == [], "not before the first round is complete"
    assert rates.second_round([*first, *again]) == second


def test_a_style_that_wrecks_accuracy_is_worth_less() -> None:
    spoiled, kept = (
        result(rates.first_round(["opd"], ["ta"])[0], {256: style}, accuracy)
        for style, accuracy in ((1.0, 0.2), (0.5, 0.9))
    )
    assert rates.worth(spoiled.curves["ta"][-1]) < rates.worth(kept.curves["ta"][-1]) == pytest.approx(0.45)
