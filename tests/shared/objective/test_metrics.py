"""What a batch's loss was made of, counted in several processes."""

from __future__ import annotations

import pytest

from openclaw_rl.shared.objective.metrics import BatchFigures
from openclaw_rl.shared.objective.terms import terms_of
from openclaw_rl.shared.trainer import Recipe
from tests.trainer_local.tiny import sample

RECIPE = Recipe(rewards="all")
SAMPLES = [sample(number, hints=0, reward=1.0 - number) for number in range(3)]


def figures() -> BatchFigures:
    return BatchFigures(SAMPLES, [terms_of(one, RECIPE) for one in SAMPLES], RECIPE)


def test_what_processes_counted_of_their_parts_adds_up_to_what_one_counts_of_all() -> None:
    counted = [([1.0, 2.0], [0.5, -0.5], 0.25), ([0.7], [1.0], -0.125), ([], [], 0.0)]
    whole, parts = figures(), []
    for ratios, advantages, loss in counted:
        parts.append(figures())
        for one in (whole, parts[-1]):
            one.add(ratios, advantages)
            one.losses["binary"] += loss
            one.reported["opd"] += 2 * loss
    total = figures()
    total.take(parts)
    assert total.metrics() == pytest.approx(whole.metrics(), abs=0.0)
    assert total.metrics()["ratio/clipped"] == pytest.approx(2 / 3)
