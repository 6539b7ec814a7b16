from __future__ import annotations

import pytest

from openclaw_rl.environments.attempt import Attempt, Status
from openclaw_rl.environments.attempt_log import EndedLine, Member
from openclaw_rl.environments.pass_rate import pass_rate, wilson


def line(task: str, number: int, reward: float | None, status: Status = "ok") -> EndedLine:
    attempt = Attempt(reward=reward, status=status, steps=2)
    return EndedLine.from_attempt("s", Member("g", number, task), attempt, last=True)


def test_wilsons_interval_of_a_known_case() -> None:
    # 81 of 263, by hand and in Newcombe 1998, table 1: 0.2553 to 0.3662.
    low, high = wilson(81 / 263, 263)
    assert (round(low, 4), round(high, 4)) == (0.2553, 0.3662)
    assert wilson(0.0, 10)[0] == 0.0 and wilson(1.0, 10)[1] == pytest.approx(1.0)


def test_attempts_without_a_verdict_are_no_failures() -> None:
    found = pass_rate([line("a", 0, 1.0), line("b", 0, 0.0), line("c", 0, None, "env_error")])
    assert (found.rate, found.reward, found.attempts, found.tasks) == (0.5, 0.5, 3, 3)
    assert found.no_verdict == {"env_error": 1}
    assert str(found).endswith("without a verdict: 1 env_error")


def test_the_interval_counts_tasks_and_not_the_attempts_at_them() -> None:
    many = pass_rate([line(task, number, float(task == "a")) for task in "ab" for number in range(50)])
    assert (many.rate, many.low, many.high) == (0.5, *(pytest.approx(value, abs=1e-4) for value in wilson(0.5, 2)))


def test_a_reward_below_one_is_no_pass_and_a_mean_all_the_same() -> None:
    found = pass_rate([line("a", 0, 0.5), line("b", 0, 3.0)])
    assert (found.rate, found.reward) == (0.5, 1.75)


def test_a_run_without_any_verdict_has_no_rate() -> None:
    found = pass_rate([line("a", 0, None, "timeout")])
    assert (found.rate, found.low, found.reward) == (None, None, None)
    assert str(found) == "no verdict on 1 attempts; without a verdict: 1 timeout"
