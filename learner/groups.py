"""Groups: attempts at one task, whose steps are compared with each other. Pure functions.

The reward of a step is R = o + c · mean(valid votes): o the outcome of its attempt, c the setting `step_rewards`. A
step without a valid vote has the outcome alone. Its advantage is (R − mean) / std, over the attempts' steps with the
same index: attempts at one task begin alike and then differ, so the index is all that their states have in common. The
statistics are those of the whole group, also of steps that are too old or too long to be learned from. Where all
rewards are the same there is nothing to compare, and no gradient; a step that no other attempt reached has R itself.

Source: OpenClaw-RL (arXiv 2603.10165v2, section 3.3); the advantage of one step index is GRPO's (arXiv 2402.03300).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

import msgspec

from openclaw_rl.shared.journal.step_statistics import StepStatistics, statistics
from openclaw_rl.shared.journal.views import GroupAttempt, WaitingGroup
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.settings.learning import GroupAdvantage


def step_reward(outcome: float, vote: float | None, weight: float) -> float:
    """R of a step of an attempt with this outcome; `vote` is the mean of its valid votes."""
    return outcome if vote is None else outcome + weight * vote


def advantage(reward: float, among: StepStatistics, kind: GroupAdvantage) -> float:
    """The advantage of a step with this reward: `normalised` (R − mean) / std, `centred` R − mean, `none` R. 0 where
    all rewards are the same, R itself where no other attempt reached the step.
    """
    if kind == "none" or among.count < 2:
        return reward
    if among.constant:
        return 0.0
    return (reward - among.mean) / (among.deviation if kind == "normalised" else 1.0)


def compare(
    samples: Sequence[Sample], attempts: Sequence[GroupAttempt], kind: GroupAdvantage
) -> tuple[list[Sample], set[str], list[Sample]]:
    """The samples of a group with their advantages; the ids of those with nothing to compare; and samples that a
    person's word scored in place of the outcome, which are compared with no other and belong to no group any more.
    """
    among = statistics(attempts)
    places = {step.turn_id: (index, step.reward) for attempt in attempts for index, step in enumerate(attempt.steps)}
    members, constant, others = [], set[str](), []
    for sample in samples:
        place, reward = places.get(sample.turn_id or "", (0, None))
        if reward is None:
            others.append(msgspec.structs.replace(sample, group=""))
            continue
        if kind != "none" and among[place].constant:
            constant.add(sample.sample_id)
        members.append(
            msgspec.structs.replace(sample, step_index=place, advantage=advantage(reward, among[place], kind))
        )
    return members, constant, others


def is_complete(group: WaitingGroup, now: float, patience: float) -> bool:
    """True if nothing is to come for a group any more: as many outcomes as attempts were wanted, those without a
    verdict among them; or no attempt is open, and the last one ended longer ago than `patience` (seconds). What came
    must be judged.
    """
    if group.unjudged:
        return False
    return bool(0 < group.attempts <= group.outcomes or (not group.open and group.last_ended < now - patience))


class GroupFigures(msgspec.Struct, frozen=True):
    """A complete group: the mean outcome of its attempts with a verdict (`None` without one), their mean number of
    steps, and whether it taught nothing.
    """

    reward: float | None
    steps: float
    constant: bool

    @classmethod
    def of(cls, attempts: Sequence[GroupAttempt], *, constant: bool) -> GroupFigures:
        """The figures of these attempts."""
        outcomes = [attempt.outcome for attempt in attempts if attempt.outcome is not None]
        steps = fmean(len(attempt.steps) for attempt in attempts) if attempts else 0.0
        return cls(fmean(outcomes) if outcomes else None, steps, constant)


def group_figures(groups: Mapping[str, GroupFigures]) -> dict[str, float]:
    """`group/complete` and `group/constant`: numbers of groups; `group/reward` and `group/steps`: means over them.
    Nothing without groups.
    """
    if not groups:
        return {}
    rewards = [group.reward for group in groups.values() if group.reward is not None]
    return {
        "group/complete": float(len(groups)),
        "group/constant": float(sum(group.constant for group in groups.values())),
        **({"group/reward": fmean(rewards)} if rewards else {}),
        "group/steps": fmean(group.steps for group in groups.values()),
    }
