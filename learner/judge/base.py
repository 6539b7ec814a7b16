"""The `Judge` protocol and how a setting becomes one. A new judge is a class with one method, named by its import
path.
"""

from __future__ import annotations

import re
from typing import Protocol, cast

from shared.errors import ConfigError
from shared.records import Judgement, NextState, Turn
from shared.registry import resolve
from shared.settings import Settings

_IMPORT_PATH = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


class Judge(Protocol):
    """Says what an answer was worth, from what came after it."""

    async def judge(self, turn: Turn, next_state: NextState) -> Judgement:
        """The judgement of `turn`. A vote that fails is a failure and no neutral vote; `score` is `None` if all did."""
        ...


def create(settings: Settings) -> Judge:
    """The judge that `settings.judge` names: `rules`, `module:Class` (called with the settings), else a LiteLLM
    model.
    """
    if settings.judge == "rules":
        from learner.judge.rules import RuleJudge

        return RuleJudge()
    if _IMPORT_PATH.fullmatch(settings.judge):
        made = resolve(settings.judge)(settings)
        if not callable(getattr(made, "judge", None)):
            raise ConfigError(f"judge = {settings.judge!r} makes a {type(made).__name__}, which has no method `judge`")
        return cast(Judge, made)
    from learner.judge.llm import ModelJudge

    return ModelJudge(settings)
