"""The distance of a step, by its sampled tokens: expectations worked out over a small vocabulary."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from openclaw_rl.shared.trainer import Recipe
from openclaw_rl.trainer_cloud.training.objective import drift
from tests.trainer_cloud.both import make_world
from tests.trainer_local.tiny import anchor, sample

BEFORE = np.array([0.7, 0.2, 0.06, 0.04])
AFTER = np.array([0.4, 0.3, 0.05, 0.25])


def test_a_policy_that_did_not_move_is_nowhere_else() -> None:
    same = np.log(BEFORE)
    assert drift(same, same)["kl/parent"] == 0.0


def test_over_all_that_can_be_sampled_the_mean_is_the_divergence_and_the_entropy() -> None:
    drawn = np.repeat(np.arange(4), (BEFORE * 100).astype(int))
    found = drift(np.log(BEFORE)[drawn], np.log(AFTER)[drawn])
    assert found["kl/parent"] == pytest.approx(math.fsum(BEFORE * np.log(BEFORE / AFTER)))
    assert found["entropy/mean"] == pytest.approx(-math.fsum(AFTER * np.log(AFTER)))


def test_no_draw_is_below_zero_and_none_overflows() -> None:
    generator = np.random.default_rng(3)
    for _ in range(200):
        before, after = -generator.exponential(5.0, size=(2, 1))
        assert all(value >= 0 for value in drift(before, after).values())
    rounded = drift(np.array([1e-6], dtype=np.float32), np.array([0.0], dtype=np.float32))
    assert rounded["kl/parent"] >= 0 and rounded["entropy/mean"] >= 0
    assert math.isfinite(drift(np.array([-90.0]), np.array([0.0]))["kl/parent"])


def test_of_nothing_both_are_zero() -> None:
    assert drift(np.zeros(0), np.zeros(0)) == {"kl/parent": 0.0, "entropy/mean": 0.0}


async def test_answers_of_the_policy_alone_count_where_there_are_any(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    filtered = replace(sample(2, hints=1, response=2), no_ratio="sampled with top_p 0.9")
    for samples, nearer in (([sample(1, hints=1, response=2), filtered, anchor(3)], 0.5), ([filtered, anchor(3)], 3.0)):
        objective = await world.learned(samples, Recipe(topk=4))
        before = [np.full(one.targets.shape, -4.0, dtype=np.float32) for one in objective.asked()]
        after = [np.full(one.targets.shape, -7.0, dtype=np.float32) for one in objective.asked()]
        after[0][:] = -4.0 - nearer
        found = objective.drift(before, after)
        assert found["kl/parent"] == pytest.approx(math.exp(-nearer) - 1 + nearer)
        assert found["entropy/mean"] == pytest.approx(4.0 + nearer)
