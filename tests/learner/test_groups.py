"""Groups of attempts: rewards, advantages and completeness, with numbers by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from openclaw_rl.learner.groups import (
    GroupFigures,
    advantage,
    compare,
    group_figures,
    is_complete,
    step_reward,
)
from openclaw_rl.shared.journal.step_statistics import StepStatistics, mean_vote, statistics
from openclaw_rl.shared.journal.views import GroupAttempt, GroupStep, WaitingGroup
from openclaw_rl.shared.records import Vote
from tests.learner.test_methods_and_guard import sample

FAILED = Vote(failure="no answer")


def votes(*scores: float) -> list[Vote]:
    return [Vote(score=score) for score in scores]


def attempts(*rewards: list[float | None], outcome: float | None = 1.0) -> list[GroupAttempt]:
    """Attempts with these rewards of their steps; turns are named by attempt and step."""
    return [
        GroupAttempt(f"s{one}", 0, outcome, [GroupStep(f"{one}.{step}", reward) for step, reward in enumerate(steps)])
        for one, steps in enumerate(rewards)
    ]


def waiting(**changes: Any) -> WaitingGroup:
    fields: dict[str, Any] = {
        "name": "g", "ready": 8, "attempts": 8, "outcomes": 8, "open": 0, "unjudged": 0, "last_ended": 1000.0,
    }  # fmt: skip
    return WaitingGroup(**(fields | changes))


@pytest.mark.parametrize(
    ("outcome", "given", "weight", "reward"),
    [
        (1.0, votes(1, 1, -1), 0.5, 1 + 0.5 / 3),
        (1.0, votes(1, 1, -1), 1.0, 1 + 1 / 3),
        (1.0, votes(1, 1, -1), 0.0, 1.0),
        (0.0, [*votes(1, 0), FAILED], 1.0, 0.5),  # a failed vote is no vote
        (0.0, [FAILED, FAILED], 1.0, 0.0),
        (0.0, [Vote(hint="Look first.", about="hint")], 1.0, 0.0),
        (-3.0, votes(-1), 1.0, -4.0),  # compared only, so not clamped
    ],
)
def test_a_reward_is_the_outcome_and_the_weighted_mean_of_the_valid_votes(
    outcome: float, given: list[Vote], weight: float, reward: float
) -> None:
    assert step_reward(outcome, mean_vote(given), weight) == pytest.approx(reward)


def test_steps_are_compared_with_the_same_step_of_the_other_attempts() -> None:
    first, second, third = statistics(attempts([1.0, 1.0], [0.0, 0.0, 2.0], [0.0, 0.0], [0.0, None], [1.0]))
    assert first == StepStatistics(5, 0.4, math.sqrt(0.24))  # two of five: std .49
    assert (second.count, second.mean, second.deviation) == (3, pytest.approx(1 / 3), pytest.approx(math.sqrt(2) / 3))
    assert third == StepStatistics(1, 2.0, 0.0)
    assert advantage(1.0, second, "normalised") == pytest.approx(math.sqrt(2))
    assert advantage(0.0, second, "normalised") == pytest.approx(-math.sqrt(0.5))
    assert advantage(1.0, second, "centred") == pytest.approx(2 / 3)
    assert advantage(1.0, second, "none") == 1.0
    assert [advantage(2.0, third, kind) for kind in ("normalised", "centred", "none")] == [2.0] * 3, "alone: itself"


@pytest.mark.parametrize("reward", [0.0, 1.0, 0.1 + 0.2, -7.5])
def test_the_same_reward_everywhere_gives_no_advantage(reward: float) -> None:
    (same,) = statistics(attempts(*[[reward]] * 7))
    assert same.constant and advantage(reward, same, "normalised") == advantage(reward, same, "centred") == 0.0
    assert advantage(reward, same, "none") == reward
    (alone,) = statistics(attempts([reward]))
    assert not alone.constant


def test_without_verdicts_there_are_no_statistics() -> None:
    assert statistics([]) == []
    assert statistics(attempts([None], [None])) == [StepStatistics(0, 0.0, 0.0)]


def test_the_weight_of_the_votes_changes_what_is_learned() -> None:
    given = {0: votes(1, 1, 1), 1: votes(-1, -1, 1), 2: votes(1, -1, -1)}
    outcomes = {0: 1.0, 1: 1.0, 2: 0.0}
    found: dict[float, list[float]] = {}
    for weight in (0.0, 1.0):
        rewards = [step_reward(outcomes[one], mean_vote(given[one]), weight) for one in given]
        (among,) = statistics(attempts(*[[reward] for reward in rewards]))
        found[weight] = [advantage(reward, among, "normalised") for reward in rewards]
    assert found[0.0] == pytest.approx([math.sqrt(0.5), math.sqrt(0.5), -math.sqrt(2)])
    # R = 2, 2/3, -1/3: mean 7/9, deviations 11/9, -1/9, -10/9, std sqrt(222 / 243)
    assert found[1.0] == pytest.approx([value / 9 / math.sqrt(222 / 243) for value in (11, -1, -10)])


def test_samples_are_compared_with_steps_that_have_none_and_a_persons_word_with_nothing() -> None:
    members = attempts([1.0, 1.0], [0.0, 1.0], [0.0], [None])
    ready = [
        sample(sample_id=turn, turn_id=turn, group="g", reward=reward)
        for turn, reward in (("0.0", 1.0), ("0.1", 1.0), ("3.0", -1.0))
    ]
    compared, constant, others = compare(ready, members, "normalised")
    assert [(one.turn_id, one.group, one.step_index) for one in compared] == [("0.0", "g", 0), ("0.1", "g", 1)]
    assert [one.advantage for one in compared] == [pytest.approx(math.sqrt(2)), 0.0]
    assert constant == {"0.1"}
    assert [(one.turn_id, one.group, one.advantage) for one in others] == [("3.0", "", None)]
    assert compare(ready, members, "none")[1] == set()


@pytest.mark.parametrize(
    ("changes", "complete"),
    [
        ({}, True),
        ({"outcomes": 9}, True),  # one without a verdict was tried again
        ({"outcomes": 8, "open": 1}, True),
        ({"unjudged": 1}, False),
        ({"outcomes": 7, "open": 1}, False),
        ({"outcomes": 7, "last_ended": 1050.0}, False),
        ({"outcomes": 7, "last_ended": 1039.0}, True),  # its runner died
        ({"outcomes": 7, "last_ended": 1039.0, "open": 1}, False),
        ({"attempts": 0, "outcomes": 0, "last_ended": 1050.0}, False),
        ({"attempts": 0, "outcomes": 5, "last_ended": 1039.0}, True),
    ],
)
def test_a_group_is_complete_with_all_outcomes_or_when_nothing_is_to_come(
    changes: dict[str, Any], complete: bool
) -> None:
    assert is_complete(waiting(**changes), now=1100.0, patience=60.0) is complete


def test_figures_are_means_over_the_complete_groups() -> None:
    mixed = attempts([1.0, 1.0], [0.0, 0.0]) + attempts([None], outcome=None)
    mixed[1] = GroupAttempt("s1", 0, 0.0, mixed[1].steps)
    groups = {
        "mixed": GroupFigures.of(mixed, constant=False),
        "constant": GroupFigures.of(attempts([1.0], [1.0]), constant=True),
        "lost": GroupFigures.of([], constant=True),
    }
    assert groups["mixed"] == GroupFigures(0.5, pytest.approx(5 / 3), False)  # type: ignore[arg-type]
    assert group_figures(groups) == {
        "group/complete": 3.0,
        "group/constant": 2.0,
        "group/reward": 0.75,
        "group/steps": pytest.approx((5 / 3 + 1) / 3),
    }
    assert group_figures({}) == {}
