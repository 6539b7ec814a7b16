"""The protocols of judging: a `Judge` scores a turn, an `Asker` answers a question."""

from __future__ import annotations

from typing import Protocol

import msgspec

from openclaw_rl.shared.records import Judgement, NextState, Turn


class Judge(Protocol):
    """Scores an answer by what came after it."""

    async def judge(self, turn: Turn, next_state: NextState) -> Judgement:
        """The judgement of `turn`. A failed vote counts neither way; `score` is `None` if all failed.

        Raises `JudgeAway` while the judge cannot be asked: the turn waits.
        """
        ...

    async def close(self) -> None:
        """Release connections."""
        ...


class Said(msgspec.Struct, frozen=True):
    """An answer as text, and the thoughts before it. `cut` is the reason why it is incomplete, or ""."""

    text: str
    thoughts: str = ""
    cut: str = ""

    @property
    def kept(self) -> str:
        """The text that a vote keeps."""
        return f"<think>\n{self.thoughts}\n</think>\n{self.text}" if self.thoughts else self.text


class Asker(Protocol):
    """Answers a question with text."""

    name: str

    async def ask(self, question: str) -> Said:
        """The answer. Raises `JudgeError` if there is none, `JudgeAway` while the model cannot be asked."""
        ...

    async def close(self) -> None:
        """Release connections."""
        ...
