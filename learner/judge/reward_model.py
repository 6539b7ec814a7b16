"""A scalar reward model as the judge: one number per turn, and no hint.

The first rating loads the model; until then it is away, and turns wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from openclaw_rl.learner.judge.prompt import spoken
from openclaw_rl.learner.judge.selection import NONE
from openclaw_rl.shared.backends import Rating, RewardModel
from openclaw_rl.shared.errors import ConfigError, JudgeAway, JudgeError
from openclaw_rl.shared.records import Judgement, NextState, Turn, Vote
from openclaw_rl.shared.settings.settings import Settings

VERSION = "reward-model-v1"


class RewardModelJudge:
    """Judges by one vote without a second try: the same text gets the same number."""

    def __init__(self, model: RewardModel, folder: str, settings: Settings) -> None:
        self.name = f"reward-model:{Path(folder).name}"
        self._model = model
        self._seconds = settings.judge.timeout
        self._first: asyncio.Task[Rating] | None = None
        self._loaded = False
        self._turn = asyncio.Lock()  # waiting in line is no part of a vote's time

    async def judge(self, turn: Turn, next_state: NextState) -> Judgement:
        """One vote. Raises `JudgeAway` while the model is loading, and where it cannot be loaded."""
        messages = conversation(turn, next_state)
        async with self._turn:
            if not self._loaded:
                await self._load(messages)
            return await self._vote(turn, messages)

    async def close(self) -> None:
        """Do not wait for a model that is still loading."""
        if self._first is not None:
            self._first.cancel()

    async def _load(self, messages: Sequence[tuple[str, str]]) -> None:
        """Wait until the model has rated something."""
        if self._first is None:
            self._first = asyncio.create_task(self._model.rate(messages))
        done, _ = await asyncio.wait([self._first], timeout=self._seconds)
        if not done:
            raise JudgeAway(f"the judge {self.name} waits for its model, which is still loading")
        failure, self._first = self._first.exception(), None
        if isinstance(failure, ConfigError):
            raise JudgeAway(f"the judge {self.name} waits for its model: {failure}") from failure
        if failure is not None and not isinstance(failure, JudgeError):
            raise failure
        self._loaded = failure is None

    async def _vote(self, turn: Turn, messages: Sequence[tuple[str, str]]) -> Judgement:
        try:
            async with asyncio.timeout(self._seconds):
                rated = await self._model.rate(messages)
            vote = Vote(text=rated.explanation, score=rated.score)
        except TimeoutError:
            vote = Vote(failure=f"no score within {self._seconds:g} s")
        except (JudgeError, ConfigError) as error:
            vote = Vote(failure=str(error))
        return Judgement(
            turn_id=turn.turn_id,
            score=vote.score,
            votes=[vote],
            judge=self.name,
            prompt_version=VERSION,
            selection=NONE,
            reason=f"1 of 1 votes failed: {vote.failure}" if vote.failure else vote.text,
        )


def conversation(turn: Turn, next_state: NextState) -> list[tuple[str, str]]:
    """Request, answer and next state as (role, text); what an environment said comes under `tool`."""
    asked = [(str(message["role"]), spoken(message)) for message in turn.messages]
    role = "user" if next_state.role == "user" else "tool"
    came = [(role, next_state.text)] if next_state.text else []
    return [*asked, ("assistant", spoken(turn.answer)), *came]
