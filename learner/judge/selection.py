"""Select one of several proposed hints.

As published, one vote with a hint is enough. The hints are ordered by length, shortest first, and the overlap
selections compare the first three.

`overlap-sequence` (the second OpenClaw-RL paper's choice, see docs/methods.md): for each hint the engine scores the
sampled answer under the hinted prompt with the teacher (the base, or another model), and once under the plain prompt
with the version that sampled it. The hint with the most of its k likeliest tokens among the student's wins, summed over
the answer; the shortest of equals. `overlap-token` leaves that choice to the trainer, token by token.
"""

from __future__ import annotations

import asyncio
import logging
import unicodedata
from array import array
from collections.abc import Sequence

import msgspec

from openclaw_rl.learner.judge.askers.engine import LazyPrompter
from openclaw_rl.learner.rollouts.rehearsal import hinted_prompt
from openclaw_rl.shared.engine.protocol import Engine, Priority, Scores
from openclaw_rl.shared.errors import BadRequest, ConfigError, EngineError
from openclaw_rl.shared.messages.images import images_of, shown_again
from openclaw_rl.shared.records import Turn, Vote
from openclaw_rl.shared.settings.settings import Settings

log = logging.getLogger(__name__)

MOST_CANDIDATES = 3
SHORTEST_HINT = 11
"""Least width of a hint; ten characters or less are dropped, as published."""
NONE = "none"


class Selected(msgspec.Struct, frozen=True):
    """The selected hint, the way of selection (`Judgement.selection`), and a remark."""

    hint: str | None = None
    selection: str = NONE
    reason: str = ""


def candidates_of(votes: Sequence[Vote]) -> list[str]:
    """The distinct hints of the valid votes, shortest first, without those below `SHORTEST_HINT`."""
    proposed = [vote.hint.strip() for vote in votes if vote.hint and not vote.failure]
    return sorted((hint for hint in dict.fromkeys(proposed) if _width(hint) >= SHORTEST_HINT), key=len)


def _width(hint: str) -> int:
    """Characters; a Chinese, Japanese or Korean one counts as two, because it says about as much as two others."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in hint)


class Selector:
    """Selects by `hint_selection`. Without an engine or a prompter, or if the engine cannot score, `overlap-sequence`
    becomes `shortest`, with the reason.
    """

    def __init__(
        self,
        settings: Settings,
        engine: Engine | None = None,
        prompter: LazyPrompter | None = None,
        teacher: Engine | None = None,
    ) -> None:
        """`engine` serves the policy, `teacher` another model that teaches; it is closed with the selector."""
        self._settings = settings
        self._engine = engine
        self._prompter = prompter
        self._teacher = teacher

    async def close(self) -> None:
        """Release the connections to the teacher's engine."""
        if self._teacher is not None:
            await self._teacher.close()

    async def choose(self, turn: Turn, votes: Sequence[Vote]) -> Selected:
        """One of the hints that `votes` propose, if any does. `votes` are those that could."""
        candidates = candidates_of(votes)
        if not candidates:
            short = any(vote.hint for vote in votes if not vote.failure)
            return Selected(reason=f"hints shorter than {SHORTEST_HINT} characters were dropped" if short else "")
        way = self._settings.learning.hint_selection
        if way == "longest":
            return Selected(max(candidates, key=len), way)
        compared = candidates[:MOST_CANDIDATES]
        if way == "overlap-token":
            return Selected(compared[0], way, "each token takes the hint that suits it")
        if way == "shortest" or len(compared) == 1:
            return Selected(compared[0], way)
        return await self._by_overlap(turn, compared)

    async def _by_overlap(self, turn: Turn, candidates: Sequence[str]) -> Selected:
        try:
            overlaps = await self._overlaps(turn, candidates)
        except (EngineError, BadRequest, ConfigError) as error:
            log.warning("hints of turn %s cannot be compared: %s", turn.turn_id, error)
            return Selected(
                candidates[0], "shortest", f"overlap-sequence was not possible, so the shortest hint: {error}"
            )
        counts = ", ".join(str(overlap) for overlap in overlaps)
        best = candidates[overlaps.index(max(overlaps))]
        return Selected(best, "overlap-sequence", f"tokens in common, by hint: {counts}")

    async def _overlaps(self, turn: Turn, candidates: Sequence[str]) -> list[int]:
        if self._engine is None or self._prompter is None:
            raise EngineError("there is no engine to ask")
        length = len(turn.prompt_ids) + len(turn.response_ids)
        if not len(turn.response_ids) or length > self._settings.learning.max_sample_tokens:
            raise EngineError(f"{len(turn.response_ids)} tokens sampled after {len(turn.prompt_ids)} in the prompt")
        prompter = await self._prompter.get()
        hinted = [await asyncio.to_thread(hinted_prompt, prompter, turn, hint) for hint in candidates]
        student = await self._student(self._engine, turn)
        if self._teacher is not None:
            return [overlap(student, await self._score(self._teacher, ids, turn, None)) for ids in hinted]
        return [overlap(student, await self._score(self._engine, ids, turn, 0)) for ids in hinted]

    async def _student(self, engine: Engine, turn: Turn) -> Scores:
        """The likeliest tokens under the version that sampled the answer, or the live one if that is gone."""
        sampled = {span.version for span in turn.versions}
        try:
            return await self._score(engine, turn.prompt_ids, turn, sampled.pop() if len(sampled) == 1 else None)
        except EngineError as error:
            if error.status != 404:
                raise
            return await self._score(engine, turn.prompt_ids, turn, None)

    async def _score(self, engine: Engine, prompt_ids: Sequence[int], turn: Turn, version: int | None) -> Scores:
        scores = await engine.score(
            array("I", prompt_ids).tolist(),
            array("I", turn.response_ids).tolist(),
            version=version,
            top_k=self._settings.learning.select_k,
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
