"""Judges that are wrong on purpose: the placebo, irrelevant hints, and a share of wrong judgements."""

from __future__ import annotations

from random import Random

import msgspec

from learner.judge.rules import RuleJudge
from shared.records import Judgement, NextState, Turn
from shared.settings import Settings

IRRELEVANT = (
    "I'm on my phone right now.",
    "Please remember that my sister's name is Carla.",
    "The weather is lovely here today.",
    "I have to hand this in on Friday.",
    "We did something like this at school last week.",
    "My dog is asleep next to me.",
    "I'll be back after lunch.",
    "Say hello to your team.",
)
MISLEADING = (
    "Please use bold and numbered steps.",
    "Write a numbered list with a bold final answer.",
    "Put every step on its own line with a number in front.",
    "I want the result in bold at the end.",
)


class Placebo:
    """Every score is that of another turn, drawn from all so far; no hints."""

    name = "placebo"

    def __init__(self, settings: Settings) -> None:
        self._random = Random(f"placebo {settings.seed}")
        self._rules = RuleJudge()
        self._scores: list[float] = []

    async def judge(self, turn: Turn, next_state: NextState) -> Judgement:
        """A judgement that says nothing about this turn."""
        honest = await self._rules.judge(turn, next_state)
        if honest.score is not None:
            self._scores.append(honest.score)
        score = self._random.choice(self._scores) if self._scores else honest.score
        return msgspec.structs.replace(honest, score=score, hint=None, votes=(), judge=self.name, reason="shuffled")


class Irrelevant:
    """Right scores, and hints that have nothing to do with the answer."""

    name = "irrelevant"

    def __init__(self, settings: Settings) -> None:
        self._random = Random(f"irrelevant {settings.seed}")
        self._rules = RuleJudge()

    async def judge(self, turn: Turn, next_state: NextState) -> Judgement:
        """The rules' score; where they found a hint, another one."""
        honest = await self._rules.judge(turn, next_state)
        hint = self._random.choice(IRRELEVANT) if honest.hint else None
        return msgspec.structs.replace(honest, hint=hint, votes=(), judge=self.name)


class _Wrong:
    """A share of the judgements is the opposite of what was said: praise becomes a complaint with a hint that misleads,
    a complaint becomes praise.
    """

    name = "wrong"
    share = 0.0

    def __init__(self, settings: Settings) -> None:
        self._random = Random(f"wrong {self.share} {settings.seed}")
        self._rules = RuleJudge()

    async def judge(self, turn: Turn, next_state: NextState) -> Judgement:
        """The rules' judgement, or its opposite."""
        honest = await self._rules.judge(turn, next_state)
        if not honest.score or self._random.random() >= self.share:
            return honest
        score = -honest.score
        hint = self._random.choice(MISLEADING) if score < 0 else None
        return msgspec.structs.replace(
            honest, score=score, hint=hint, votes=(), judge=self.name, reason="wrong on purpose"
        )


class Wrong5(_Wrong):
    """5 % wrong."""

    share = 0.05


class Wrong15(_Wrong):
    """15 % wrong."""

    share = 0.15


class Wrong30(_Wrong):
    """30 % wrong."""

    share = 0.30
