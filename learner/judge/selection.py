"""Select one of several proposed hints.

`overlap-sequence` (the second OpenClaw-RL paper's choice, see docs/methods.md): for each hint the engine scores the
sampled answer under the hinted prompt with the base, as the teacher will see it, and once under the plain prompt with
the version that sampled it; the hint whose k likeliest tokens are the student's too at most positions, summed over
the answer, wins. `overlap-token` leaves that choice to the trainer, token by token.
"""

from __future__ import annotations

import asyncio
import logging
from array import array
from collections.abc import Sequence

import msgspec

from openclaw_rl.learner.judge.askers.engine import LazyPrompter
from openclaw_rl.learner.judge.votes import carries
from openclaw_rl.learner.rollouts.rehearsal import hinted_prompt
from openclaw_rl.shared.engine.protocol import Engine, Priority, Scores
from openclaw_rl.shared.errors import BadRequest, ConfigError, EngineError
from openclaw_rl.shared.messages.images import images_of, shown_again
from openclaw_rl.shared.records import Turn, Vote
from openclaw_rl.shared.settings.settings import Settings

log = logging.getLogger(__name__)

MOST_CANDIDATES = 3
NONE = "none"


class Selected(msgspec.Struct, frozen=True):
    """The selected hint, the way of selection (`Judgement.selection`), and a remark."""

    hint: str | None = None
    selection: str = NONE
    reason: str = ""


class Selector:
    """Selects by `hint_selection`. Without an engine or a prompter, or if the engine cannot score, the overlap
    selections become `longest`, with the reason.
    """

    def __init__(self, settings: Settings, engine: Engine | None = None, prompter: LazyPrompter | None = None) -> None:
        self._settings = settings
        self._engine = engine
        self._prompter = prompter

    async def choose(self, turn: Turn, votes: Sequence[Vote]) -> Selected:
        """A hint if enough of the valid votes proposed one (`judge_threshold`). `votes` are those that could."""
        valid = [vote for vote in votes if not vote.failure]
        proposed = [vote.hint for vote in valid if vote.hint]
        if not proposed:
            return Selected()
        if not carries(len(proposed), len(valid), self._settings.judge.threshold):
            return Selected(reason=f"{len(proposed)} of {len(valid)} valid votes propose a hint, too few for one")
        way = self._settings.learning.hint_selection
        if way == "shortest":
            return Selected(min(proposed, key=len), way)
        longest = max(proposed, key=len)
        if way == "overlap-token":
            return Selected(longest, way, "each token takes the hint that suits it")
        candidates = list(dict.fromkeys(proposed))[:MOST_CANDIDATES]
        if way == "longest" or len(candidates) == 1:
            return Selected(candidates[0] if len(candidates) == 1 else longest, way)
        return await self._by_overlap(turn, candidates, longest)

    async def _by_overlap(self, turn: Turn, candidates: Sequence[str], longest: str) -> Selected:
        try:
            overlaps = await self._overlaps(turn, candidates)
        except (EngineError, BadRequest, ConfigError) as error:
            log.warning("hints of turn %s cannot be compared: %s", turn.turn_id, error)
            return Selected(longest, "longest", f"overlap-sequence was not possible, so the longest hint: {error}")
        best = max(range(len(candidates)), key=lambda index: (overlaps[index], len(candidates[index])))
        counts = ", ".join(str(overlap) for overlap in overlaps)
        return Selected(candidates[best], "overlap-sequence", f"tokens in common, by hint: {counts}")

    async def _overlaps(self, turn: Turn, candidates: Sequence[str]) -> list[int]:
        if self._engine is None or self._prompter is None:
            raise EngineError("there is no engine to ask")
        length = len(turn.prompt_ids) + len(turn.response_ids)
        if not len(turn.response_ids) or length > self._settings.learning.max_sample_tokens:
            raise EngineError(f"{len(turn.response_ids)} tokens sampled after {len(turn.prompt_ids)} in the prompt")
        prompter = await self._prompter.get()
        hinted = [await asyncio.to_thread(hinted_prompt, prompter, turn, hint) for hint in candidates]
        student = await self._student(turn)
        return [overlap(student, await self._score(ids, turn, 0)) for ids in hinted]

    async def _student(self, turn: Turn) -> Scores:
        """The likeliest tokens under the version that sampled the answer, or the live one if that is gone."""
        sampled = {span.version for span in turn.versions}
        try:
            return await self._score(turn.prompt_ids, turn, sampled.pop() if len(sampled) == 1 else None)
        except EngineError as error:
            if error.status != 404:
                raise
            return await self._score(turn.prompt_ids, turn, None)

    async def _score(self, prompt_ids: Sequence[int], turn: Turn, version: int | None) -> Scores:
        assert self._engine is not None
        top_k = self._settings.learning.select_k
        scores = await self._engine.score(
            array("I", prompt_ids).tolist(),
            array("I", turn.response_ids).tolist(),
            version=version,
            top_k=top_k,
            priority=Priority.JUDGE,
            images=shown_again(images_of(turn), turn.prompt_ids, prompt_ids),
        )
        if len(scores.top) != len(turn.response_ids):
            raise EngineError("the engine tells no likeliest tokens")
        return scores


def overlap(student: Scores, teacher: Scores) -> int:
    """The number of likeliest tokens that both have in common, summed over the positions."""
    return sum(
        len({token for _, token in mine} & {token for _, token in theirs})
        for mine, theirs in zip(student.top, teacher.top, strict=True)
    )
