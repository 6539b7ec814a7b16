"""Whether the rewards of a batch contradict what people accepted before it, and whether they praise noise.

A step on a few rewards moves the weights little, so a probe of the candidate alone may see nothing of a batch whose
rewards are upside down; the next such batches would do the harm. But the batch can be asked: what people accepted has
made the live policy differ from its base, so how much more likely an answer is under the live policy than under the
base says how much they like such answers (the implicit reward of arXiv 2305.18290, section 4, up to a constant). Where
people mostly accepted answers lately and a batch rejects, without a word, what the policy has learned to say, or
accepts what it has learned to leave, either the rewards are wrong or the people have changed their mind; the guard
waits until they say so more often (`learner.guard.held_out.standing`).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

LEAST = 4
"""Rewards that must contradict, and acceptances that must stand, before anything is made of it."""
INDIFFERENT = 0.5
"""Nats (of a whole answer) by which live policy and base must differ about it for its reward to be for or against."""
SHARE = 0.5
"""Contradictions less agreements, as a share of the rewards, from which a batch contradicts."""


class Rewarded(msgspec.Struct, frozen=True):
    """A batch's answer with a reward that would train and no reason beside it: its summed logprobs under the live
    policy and the base, its length in tokens, and whether a person gave the reward.
    """

    turn_id: str
    reward: float
    live: float
    base: float
    tokens: int
    by_a_person: bool

    @property
    def implicit(self) -> float:
        """The implicit reward, in nats."""
        return self.live - self.base

    @property
    def under_base(self) -> float:
        """Mean logprob a token under the base."""
        return self.base / max(self.tokens, 1)


def disagreement(rewarded: Sequence[Rewarded]) -> tuple[int, int]:
    """How many rewards of people contradict the implicit reward of their answers, and how many agree with it."""
    against = agreed = 0
    for one in rewarded:
        if one.by_a_person and abs(one.implicit) >= INDIFFERENT and one.reward:
            if (one.reward > 0) == (one.implicit > 0):
                agreed += 1
            else:
                against += 1
    return against, agreed


def contradicts(rewarded: Sequence[Rewarded]) -> bool:
    """Whether the rewards of the batch as a whole contradict what people accepted."""
    against, agreed = disagreement(rewarded)
    people = sum(one.by_a_person for one in rewarded)
    return against >= LEAST and against - agreed >= SHARE * people


def praised_noise(rewarded: Sequence[Rewarded], usual: float, margin: float) -> list[Rewarded]:
    """The answers with a positive reward that the base finds less likely than `usual` (mean logprob a token of the live
    policy's answers) by more than `margin`.
    """
    return [one for one in rewarded if one.reward > 0 and one.under_base < usual - margin]
