from __future__ import annotations

from typing import Any

import pytest

from openclaw_rl.learner.methods import mean_reward, method, subtract_baseline
from openclaw_rl.shared.records import PolicyVersion
from tests.learner.test_methods_and_guard import sample


def version(number: int, mean: float | None, **changes: Any) -> PolicyVersion:
    fields: dict[str, Any] = {
        "number": number,
        "parent": number - 1,
        "state": "retired",
        "checkpoint": "",
        "sample_ids": ["s"],
        "metrics": {} if mean is None else {"reward/mean": mean},
    }
    return PolicyVersion(**(fields | changes))


def test_the_mean_reward_is_a_running_mean_over_versions_that_count() -> None:
    assert mean_reward([]) is None
    assert mean_reward([version(0, None, sample_ids=[])]) is None
    found = mean_reward(
        [version(1, 1.0), version(2, 0.0), version(3, -9.0, state="rejected"), version(4, -1.0), version(5, None)]
    )
    assert found == pytest.approx(0.9 * (0.9 * 1.0 + 0.1 * 0.0) + 0.1 * -1.0)


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
