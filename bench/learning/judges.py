"""Judges with random errors, to measure noise. The placebo and irrelevant hints are in `evaluation.judges`."""

from __future__ import annotations

from random import Random

import msgspec

from openclaw_rl.learner.judge.rules.rules import RuleJudge
from openclaw_rl.shared.records import Judgement, NextState, Turn
from openclaw_rl.shared.settings.settings import Settings

MISLEADING = (
    "Please use bold and numbered steps.",
    "Write a numbered list with a bold final answer.",
    "Put every step on its own line with a number in front.",
    "I want the result in bold at the end.",
)


class _Wrong:
    """Invert a share of the judgements: praise becomes a complaint with a misleading hint, complaints become praise."""

    name = "wrong"
    share = 0.0

    def __init__(self, settings: Settings) -> None:
        self._random = Random(f"wrong {self.share} {settings.learning.seed}")
        self._rules = RuleJudge()

    async def judge(self, turn: Turn, next_state: NextState) -> Judgement:
        """Return the rules' judgement or its opposite."""
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
