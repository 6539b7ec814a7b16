"""The metrics of a batch's loss, counted in parts and in several processes."""

from __future__ import annotations

import pytest

from openclaw_rl.shared.objective.metrics import BatchMetrics
from openclaw_rl.shared.objective.terms import terms_of
from openclaw_rl.shared.trainer import Recipe
from tests.trainer_local.tiny import sample

RECIPE = Recipe(rewards="all")
SAMPLES = [sample(number, hints=0, reward=1.0 - number) for number in range(3)]


def metrics(samples: list = SAMPLES) -> BatchMetrics:  # type: ignore[type-arg]
    return BatchMetrics(samples, [terms_of(one, RECIPE) for one in samples], RECIPE)


def test_counts_of_several_processes_add_up_to_the_count_of_one() -> None:
    counted = [([1.0, 2.0], [0.5, -0.5], 0.25), ([0.7], [1.0], -0.125), ([], [], 0.0)]
    whole, parts = metrics(), []
    for ratios, advantages, loss in counted:
        parts.append(metrics())
        for one in (whole, parts[-1]):
            one.add(ratios, advantages)
            one.losses["binary"] += loss
            one.reported["opd"] += 2 * loss
    total = metrics()
    total.merge(parts)
    assert total.values() == pytest.approx(whole.values(), abs=0.0)
    assert total.values()["ratio/clipped"] == pytest.approx(2 / 3)


def test_means_and_deviations_are_those_of_all_tokens() -> None:
    found = metrics()
    found.add([1.0, 2.0], [1.0, 2.0])
    found.add([6.0], [6.0])
    values = found.values()
    assert (values["ratio/mean"], values["advantage/mean"]) == (3.0, 3.0)
    assert values["advantage/std"] == pytest.approx((14 / 3) ** 0.5)
    assert (values["reward/mean"], values["reward/std"]) == (0.0, pytest.approx((2 / 3) ** 0.5))


def test_without_tokens_and_rewards_nothing_is_undefined() -> None:
    values = metrics([sample(1, hints=0)]).values()
    assert (values["ratio/mean"], values["ratio/clipped"], values["advantage/mean"], values["advantage/std"]) == (
        (1.0, 0.0, 0.0, 0.0)
    )
    assert (values["reward/mean"], values["reward/std"]) == (0.0, 0.0)
