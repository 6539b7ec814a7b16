"""Check a batch before its step: do its rewards contradict earlier acceptances, do they praise noise?

One step on a few rewards moves the weights little, so probing the candidate may not show that the rewards are upside
down. But how much more likely an answer is under the live policy than under the base says how much people liked such
answers so far (the implicit reward of arXiv 2305.18290, section 4, up to a constant). If people mostly accepted answers
lately, and the batch rejects without a word what the policy has learned to say, or accepts what it has learned to
avoid, either the rewards are wrong or people have changed their minds; the guard waits until they say so more often
(`learner.guard.held_out.standing`).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

LEAST = 4
"""Minimum number of contradicting rewards, and of standing acceptances, for a verdict."""
INDIFFERENT = 0.5
"""Nats (of a whole answer) by which live policy and base must differ for its reward to agree or contradict."""
SHARE = 0.5
"""Contradictions minus agreements, as a share of the rewards, from which a batch contradicts."""


class Rewarded(msgspec.Struct, frozen=True):
    """A batch's answer with a reward that would train, but no hint: its summed logprobs under the live policy and the
    base, its length in tokens, and whether a person gave the reward.
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
    """The numbers of people's rewards that contradict the implicit reward of their answers, and that agree with it."""
    clear = [one for one in rewarded if one.by_a_person and one.reward and abs(one.implicit) >= INDIFFERENT]
    agreed = sum((one.reward > 0) == (one.implicit > 0) for one in clear)
    return len(clear) - agreed, agreed


def contradicts(rewarded: Sequence[Rewarded]) -> bool:
    """True if the rewards of the batch as a whole contradict earlier acceptances."""
    against, agreed = disagreement(rewarded)
    people = sum(one.by_a_person for one in rewarded)
    return against >= LEAST and against - agreed >= SHARE * people


def praised_noise(rewarded: Sequence[Rewarded], usual: float, margin: float) -> list[Rewarded]:
    """The answers with a positive reward whose mean logprob per token under the base is more than `margin` below
    `usual`, that of the live policy's answers.
    """
    return [one for one in rewarded if one.reward > 0 and one.under_base < usual - margin]
