"""Judges with random errors, or that miss much, to measure noise. The placebo is in `evaluation.judges`."""

from __future__ import annotations

from typing import Any

from openclaw_rl.evaluation.judges import SpoiledJudge
from openclaw_rl.shared.records import NOT_UNDERSTOOD, Judgement

MISLEADING = (
    "Please use bold and numbered steps.",
    "Write a numbered list with a bold final answer.",
    "Put every step on its own line with a number in front.",
    "I want the result in bold at the end.",
)


class _Wrong(SpoiledJudge):
    """Invert a share of the judgements: praise becomes a complaint with a misleading hint, complaints become praise."""

    share = 0.0

    def spoil(self, honest: Judgement) -> dict[str, Any]:
        if not honest.score or self._random.random() >= self.share:
            return {}
        hint = self._random.choice(MISLEADING) if honest.score > 0 else None
        return {"score": -honest.score, "hint": hint, "reason": "wrong on purpose"}


class Wrong5(_Wrong):
    """5 % wrong."""

    name = "wrong 0.05"
    share = 0.05


class Wrong15(_Wrong):
    """15 % wrong."""

    name = "wrong 0.15"
    share = 0.15


class Wrong30(_Wrong):
    """30 % wrong."""

    name = "wrong 0.3"
    share = 0.3


class MissesHalf(SpoiledJudge):
    """Understand half of the messages; the others have no score and no hint."""

    name = "misses half"

    def spoil(self, honest: Judgement) -> dict[str, Any]:
        if self._random.random() < 0.5:
            return {}
        return {"score": None, "hint": None, "reason": f"{NOT_UNDERSTOOD}: missed on purpose"}
