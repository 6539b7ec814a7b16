"""Judges that are wrong on purpose, for the arms that an experiment is compared with: `judge =
"openclaw_rl.evaluation.judges:Placebo"`. They implement the contract of a custom judge (docs/judging.md) on top of
the judge by rules, which they know by its name alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from random import Random
from typing import Any, ClassVar

import msgspec

from openclaw_rl.shared.hooks import resolve
from openclaw_rl.shared.records import Judgement, NextState, Turn
from openclaw_rl.shared.settings.settings import Settings

RULES = "openclaw_rl.learner.judge.rules.rules:RuleJudge"
IRRELEVANT_HINTS = (
    "I am writing this on the train.",
    "My brother's name is Emil, by the way.",
    "It has been raining since the morning.",
    "This has to be done by Thursday.",
    "We had a test about this last month.",
    "The cat is sitting on my keyboard.",
    "I will be away for an hour after this.",
    "Greetings from my sister.",
)


class SpoiledJudge(ABC):
    """The judge by rules with its judgements spoiled, by a random stream of the settings' seed."""

    name: ClassVar[str]

    def __init__(self, settings: Settings) -> None:
        self._random = Random(f"{self.name} {settings.learning.seed}")
        self._honest: Any = resolve(RULES)()

    async def judge(self, turn: Turn, next_state: NextState) -> Judgement:
        """The judgement of the rules, spoiled."""
        honest: Judgement = await self._honest.judge(turn, next_state)
        changes = self.spoil(honest)
        return msgspec.structs.replace(honest, votes=(), judge=self.name, **changes) if changes else honest

    @abstractmethod
    def spoil(self, honest: Judgement) -> dict[str, Any]:
        """The fields to change; none leaves the judgement as it is."""


class Placebo(SpoiledJudge):
    """Shuffled rewards: every score is that of another turn, drawn from all so far. No hints."""

    name = "placebo"

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._scores: list[float] = []

    def spoil(self, honest: Judgement) -> dict[str, Any]:
        if honest.score is not None:
            self._scores.append(honest.score)
        score = self._random.choice(self._scores) if self._scores else None
        return {"score": score, "hint": None, "signal": "judge", "reason": "a shuffled reward"}


class Irrelevant(SpoiledJudge):
    """Honest scores; every hint is replaced by a remark that has nothing to do with the answer."""

    name = "irrelevant"

    def spoil(self, honest: Judgement) -> dict[str, Any]:
        return {"hint": self._random.choice(IRRELEVANT_HINTS) if honest.hint else None}
