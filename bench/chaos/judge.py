"""The rules as a judge that can be taken away: it waits while the file of `AWAY_VARIABLE` exists."""

from __future__ import annotations

import os
from pathlib import Path

from openclaw_rl.learner.judge.rules.rules import RuleJudge
from openclaw_rl.shared.errors import JudgeAway
from openclaw_rl.shared.records import Judgement, NextState, Turn
from openclaw_rl.shared.settings.settings import Settings

AWAY_VARIABLE = "CHAOS_JUDGE_AWAY"


class RemovableJudge:
    """For the setting `judge`."""

    def __init__(self, settings: Settings) -> None:
        self._rules = RuleJudge()

    async def judge(self, turn: Turn, next_state: NextState) -> Judgement:
        """The rules' judgement. Raises `JudgeAway`."""
        if Path(os.environ[AWAY_VARIABLE]).exists():
            raise JudgeAway("the judge was taken away")
        return await self._rules.judge(turn, next_state)

    async def close(self) -> None:
        """Nothing to release."""
