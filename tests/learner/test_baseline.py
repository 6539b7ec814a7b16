from __future__ import annotations

import pytest

from openclaw_rl.learner.methods import method, running_mean, subtract_baseline
from tests.learner.test_methods_and_guard import sample


def test_the_usual_reward_is_a_running_mean_over_the_steps() -> None:
    assert running_mean([]) is None
    assert running_mean([1.0, 0.0, -1.0]) == pytest.approx(0.9 * (0.9 * 1.0 + 0.1 * 0.0) + 0.1 * -1.0)


def test_a_baseline_is_taken_off_rewards_that_train_and_off_no_others() -> None:
    trains = method("binary").trains_reward
    samples = [
        sample(reward=1.0),
        sample(reward=-1.0),
        sample(reward=1.0),
        sample(reward=1.0, no_ratio="greedy"),
        sample(),
    ]
    assert subtract_baseline(samples, "none", 0.5, trains) == samples
    batch = subtract_baseline(samples, "batch", 0.5, trains)
    assert [one.advantage for one in batch] == [
        pytest.approx(1 - 1 / 3),
        pytest.approx(-1 - 1 / 3),
        pytest.approx(2 / 3),
        None,
        None,
    ]
    running = subtract_baseline(samples, "running", 0.5, trains)
    assert [one.advantage for one in running] == [0.5, -1.5, 0.5, None, None]
    assert [one.advantage for one in subtract_baseline(samples, "running", None, trains)] == [
        1.0,
        -1.0,
        1.0,
        None,
        None,
    ]
    assert [one.reward for one in running] == [1.0, -1.0, 1.0, 1.0, None]
