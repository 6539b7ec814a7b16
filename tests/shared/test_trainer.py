from __future__ import annotations

import math

import pytest

from openclaw_rl.shared.trainer import Recipe


def test_the_rate_rises_over_the_warm_up_and_then_follows_its_schedule() -> None:
    recipe = Recipe(learning_rate=1.0, lr_warmup_steps=3)
    assert [recipe.rate(step) for step in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]
    linear = Recipe(learning_rate=2.0, lr_schedule="linear:12:0.5", lr_warmup_steps=2)
    assert [linear.rate(step) for step in (2, 7, 12, 50)] == [2.0, 1.5, 1.0, 1.0]
    cosine = Recipe(learning_rate=2.0, lr_schedule="cosine:10:0")
    assert cosine.rate(0) == 2.0
    assert cosine.rate(5) == pytest.approx(1.0)
    assert cosine.rate(2) == pytest.approx(1.0 + math.cos(0.2 * math.pi))
    assert cosine.rate(10) == pytest.approx(0.0)
    inverse = Recipe(learning_rate=3.0, lr_schedule="inverse:0.5", lr_warmup_steps=1)
    assert [inverse.rate(step) for step in (1, 3, 5)] == [3.0, 1.5, 1.0]
    defaults = [Recipe(learning_rate=1.0, lr_schedule=name).rate(1000) for name in ("constant", "linear", "inverse")]
    assert defaults == pytest.approx([1.0, 0.1, 1.0 / 501.0])


@pytest.mark.parametrize("schedule", ["cosine:0", "linear:10:2", "inverse:", "constant:3", "step", "cosine:ten"])
def test_a_schedule_that_cannot_be_understood_is_refused(schedule: str) -> None:
    with pytest.raises(ValueError, match="lr_schedule"):
        Recipe(lr_schedule=schedule)
