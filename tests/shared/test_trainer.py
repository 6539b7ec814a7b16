from __future__ import annotations

import math

import pytest

from openclaw_rl.shared.trainer import Recipe


def test_the_rate_rises_over_the_warm_up_and_then_follows_its_schedule() -> None:
    recipe = Recipe(learning_rate=1.0, warmup_steps=3)
    assert [recipe.rate(step) for step in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]
    linear = Recipe(learning_rate=2.0, schedule="linear", warmup_steps=2, schedule_steps=12, schedule_end=0.5)
    assert [linear.rate(step) for step in (2, 7, 12, 50)] == [2.0, 1.5, 1.0, 1.0]
    cosine = Recipe(learning_rate=2.0, schedule="cosine", schedule_steps=10, schedule_end=0.0)
    assert cosine.rate(0) == 2.0
    assert cosine.rate(5) == pytest.approx(1.0)
    assert cosine.rate(2) == pytest.approx(1.0 + math.cos(0.2 * math.pi))
    assert cosine.rate(10) == pytest.approx(0.0)
    inverse = Recipe(learning_rate=3.0, schedule="inverse", schedule_decay=0.5, warmup_steps=1)
    assert [inverse.rate(step) for step in (1, 3, 5)] == [3.0, 1.5, 1.0]
