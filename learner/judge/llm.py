"""Language models as judges: m votes for a score, each in \\boxed{}, and apart from them m votes for a hint, each
between markers. As published, the two are independent: any next state may give a hint, also next to a positive score.
"""

from __future__ import annotations

from dataclasses import dataclass

import cachetools
import msgspec

from openclaw_rl.learner.judge.prompt import HINT, JudgePrompt
from openclaw_rl.learner.judge.protocol import Judge
from openclaw_rl.learner.judge.selection import NONE, Selected, Selector
from openclaw_rl.learner.judge.votes import Voting, describe, failures, plurality, read_hint, read_score
from openclaw_rl.shared.errors import JudgeAway
from openclaw_rl.shared.records import Judgement, NextState, Turn, Vote
from openclaw_rl.shared.settings.settings import Settings


@dataclass(eq=False)
class ModelJudge:
    """Scores by votes. With `hints` a vote may hold a hint too, as a prompt of the user's may ask for one."""

    voting: Voting
    prompt: JudgePrompt
    selector: Selector
    settings: Settings
    hints: bool = False

    async def judge(self, turn: Turn, next_state: NextState) -> Judgement:
        """m votes at the same time. Raises `JudgeAway`."""
        votes = await self.voting.cast(self.prompt.fill(turn, next_state), read_score)
        if not self.hints:
            votes = [msgspec.structs.replace(vote, hint=None) for vote in votes]
        selected = await self.selector.choose(turn, votes)
        return Judgement(
            turn_id=turn.turn_id,
            score=plurality(votes, self.settings.judge.threshold),
            hint=selected.hint,
            votes=votes,
            judge=self.voting.asker.name,
            prompt_version=self.prompt.version,
            selection=selected.selection,
            reason="; ".join(filter(None, (describe(votes, self.settings.judge.threshold), selected.reason))),
        )

    async def close(self) -> None:
        await self.voting.asker.close()
        await self.selector.close()


class WithHints:
    """A judge, and m votes of a model for a hint on every turn that the judge scores."""

    def __init__(self, judge: Judge, voting: Voting, selector: Selector, settings: Settings) -> None:
        self.scorer = judge
        self._voting = voting
        self._selector = selector
        self._prompt = JudgePrompt.builtin(HINT)
        self._scored = cachetools.LRUCache[tuple[str, NextState], Judgement](settings.judge.concurrency)

    async def judge(self, turn: Turn, next_state: NextState) -> Judgement:
        """The judge's judgement with a hint. Raises `JudgeAway`; while the model is away that is asked for hints, the
        judgement is kept for the next try.
        """
        key = (turn.turn_id, next_state)
        judged = self._scored.pop(key, None) or await self.scorer.judge(turn, next_state)
        try:
            return await self._with_hint(turn, next_state, judged)
        except JudgeAway:
            self._scored[key] = judged
            raise

    async def _with_hint(self, turn: Turn, next_state: NextState, judged: Judgement) -> Judgement:
        scored = [msgspec.structs.replace(vote, hint=None) for vote in judged.votes]
        votes: list[Vote] = []
        selected = Selected()
        if judged.score is not None and next_state.text.strip():
            votes = await self._voting.cast(self._prompt.fill(turn, next_state), read_hint)
            votes = [msgspec.structs.replace(vote, about="hint") for vote in votes]
            selected = await self._selector.choose(turn, votes)
        asked = f"{self._voting.asker.name} was asked for a hint" if votes else ""
        parts = (judged.reason, asked, *failures(votes, "hint votes"), selected.reason)
        return msgspec.structs.replace(
            judged,
            hint=selected.hint,
            votes=[*scored, *votes],
            prompt_version=f"{judged.prompt_version}+{self._prompt.version}" if votes else judged.prompt_version,
            selection=selected.selection if votes else NONE,
            reason="; ".join(filter(None, parts)),
        )

    async def close(self) -> None:
        await self.scorer.close()
        await self._voting.asker.close()
        await self._selector.close()
