"""When the rewards of a batch contradict what the policy was taught to say."""

from __future__ import annotations

from openclaw_rl.learner.guard.contradiction import Rewarded, contradicts, disagreement, praised_noise


def rewarded(reward: float, implicit: float, *, base: float = -4.0, person: bool = True) -> Rewarded:
    return Rewarded("turn", reward, base + implicit, base, 20, person)


def test_praise_of_what_was_learned_and_blame_of_what_was_left_agree() -> None:
    batch = [rewarded(1.0, 2.0), rewarded(-1.0, -3.0), rewarded(1.0, 0.1), rewarded(-1.0, 0.1)]
    assert disagreement(batch) == (0, 2)
    assert not contradicts(batch)


def test_rewards_upside_down_contradict() -> None:
    batch = [*(rewarded(-1.0, 2.0) for _ in range(7)), rewarded(1.0, -2.5)]
    assert disagreement(batch) == (8, 0)
    assert contradicts(batch)
    assert not contradicts(batch[:3])


def test_a_few_bare_complaints_among_praise_are_ordinary() -> None:
    batch = [*(rewarded(-1.0, 2.0) for _ in range(4)), *(rewarded(1.0, 2.0) for _ in range(4))]
    assert disagreement(batch) == (4, 4)
    assert not contradicts(batch)


def test_before_anything_was_learned_nothing_contradicts() -> None:
    assert not contradicts([rewarded(-1.0, 0.2) for _ in range(16)])


def test_a_reward_of_an_environment_is_no_opinion() -> None:
    assert not contradicts([rewarded(-1.0, 2.0, person=False) for _ in range(8)])


def test_praise_of_noise_is_distinguished_from_praise_of_usual_answers() -> None:
    fine, noise = rewarded(1.0, 0.0, base=-6.0), rewarded(1.0, 0.0, base=-60.0)
    blamed = rewarded(-1.0, 0.0, base=-60.0)
    assert praised_noise([fine, noise, blamed], -0.2, 1.5) == [noise]
