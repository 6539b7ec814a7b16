"""Remembered hints: distinct wishes of the user, without those that accepted answers contradict.

A judge can be wrong, and people change their minds. That shows in the answers accepted after a hint: does the base find
them likelier with the hint than with a request about something else, or less likely? With a small chat model any
request makes answers that were given without it less likely, the accepted ones too. Over the last reactions a hint has
a vote each time it was said, and a vote or a part of one for or against it by each accepted answer. A hint with more
votes against than for it is taught on its own turns alone, until it is said again as often.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Sequence

import cachetools
import msgspec

from openclaw_rl.learner.rollouts.rehearsal import hinted_prompts
from openclaw_rl.shared.engine.protocol import Engine, Priority
from openclaw_rl.shared.errors import EngineError
from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.messages.images import holds_placeholder, images_of, misplaced, shown_again
from openclaw_rl.shared.records import Turn
from openclaw_rl.shared.rendering.prompter import Prompter
from openclaw_rl.shared.settings.settings import Settings

log = logging.getLogger(__name__)

WINDOW = 64
"""Number of judgements to look back on."""
ASKED = 8
"""Number of accepted answers, the newest, that vote on a hint."""
CLEAR = 4.0
"""Nats (of a whole answer) that a hint must change for a whole vote; less is a part of one. Answers of a small chat
model differ by about as much among each other (`bench.real_model.hint_effects`).
"""
UNRELATED = "Please call me Sam from now on."
"""The request about something else."""
_KEPT = 4096
SAME = 0.75
"""Share of words in common (Jaccard) from which two hints are one."""
_POLITE = re.compile(
    "a|all|an|and|any|at|for|i|in|is|it|me|of|oh|ok|okay|on|or|please|pls|just|that|the|this|to|with|you|your"
)


class HintMemory:
    """The hints that the teacher is given, newest last."""

    def __init__(self, journal: AsyncJournal, engine: Engine, prompter: Prompter, settings: Settings) -> None:
        self._journal = journal
        self._engine = engine
        self._prompter = prompter
        self._settings = settings
        self._effects = cachetools.LRUCache[tuple[str, str], float](_KEPT)
        self._unrelated = cachetools.LRUCache[str, float](_KEPT)

    async def standing(self) -> list[str]:
        """The newest distinct hints that stand; all known ones if the engine cannot score, or has dropped the
        base.
        """
        limit = self._settings.learning.max_hints
        known = distinct(await self._journal.recent_hints(8 * limit), 2 * limit)
        mentions = await self._journal.hint_mentions(WINDOW)
        accepted = await self._journal.accepted_answers(WINDOW)
        if not accepted or not mentions:
            return known[-limit:]
        try:
            return [hint for hint in known if await self._stands(hint, mentions, accepted)][-limit:]
        except EngineError as error:
            if error.status not in (404, 501):
                raise
            log.info("remembered hints are not held against accepted answers: %s", error)
            return known[-limit:]

    async def _stands(
        self, hint: str, mentions: Sequence[tuple[int, str]], accepted: Sequence[tuple[int, str]]
    ) -> bool:
        said = [number for number, text in mentions if same(text, hint)]
        if not said:
            return True
        later = [turn_id for number, turn_id in accepted if number > min(said)][:ASKED]
        balance = float(len(said))
        for turn_id in later:
            effect = await self._effect(hint, turn_id)
            balance += max(-1.0, min(1.0, effect / CLEAR))
        return balance >= 0

    async def _effect(self, hint: str, turn_id: str) -> float:
        """log base(answer | hint) − log base(answer | unrelated request), summed over the answer's tokens; 0 if the
        turn is gone or too long.
        """
        key = (hint, turn_id)
        if key not in self._effects:
            self._effects[key] = await self._measure(hint, turn_id)
        return self._effects[key]

    async def _measure(self, hint: str, turn_id: str) -> float:
        turn = await self._journal.turn(turn_id)
        if turn is None:
            return 0.0
        asked = await self._first_asked(turn)
        if misplaced(asked):
            return 0.0
        images = images_of(asked)
        if images and (asked is not turn or holds_placeholder(turn.response_ids, asked.prompt_ids, images)):
            return 0.0
        if ASKED * len(asked.prompt_ids) > self._settings.learning.max_sample_tokens:
            return 0.0
        prompts = await asyncio.to_thread(hinted_prompts, self._prompter, asked, [hint, UNRELATED])
        if not prompts:
            return 0.0
        answer = msgspec.structs.replace(asked, response_ids=turn.response_ids)
        try:
            unrelated = self._unrelated.get(turn_id)
            if unrelated is None:
                unrelated = self._unrelated[turn_id] = await self._logprob(answer, prompts[1])
            return await self._logprob(answer, prompts[0]) - unrelated
        except EngineError as error:
            if error.status != 400:
                raise
            log.info("a hint is not held against turn %s: %s", turn_id, error)
            return 0.0

    async def _first_asked(self, turn: Turn) -> Turn:
        """The turn of the first try, for an accepted second one. Its prompt holds no complaint yet; after a complaint
        another hint that says the same changes little, or makes the answer less likely.
        """
        while turn.parent_turn_id:
            complaint = await self._journal.judgement(turn.parent_turn_id)
            first = await self._journal.turn(turn.parent_turn_id)
            if first is None or complaint is None or not complaint.hint or complaint.hint_role != "user":
                break
            turn = first
        return turn

    async def _logprob(self, turn: Turn, prompt: Sequence[int]) -> float:
        images = shown_again(images_of(turn), turn.prompt_ids, prompt)
        scores = await self._engine.score(prompt, turn.response_ids, version=0, priority=Priority.AUDIT, images=images)
        return float(sum(scores.logprobs))


def key(hint: str) -> frozenset[str]:
    """The words that carry a hint's meaning, in lower case, without polite and short ones."""
    words = re.findall(r"[\w']+|\*\*", hint.lower().replace("’", "'"))
    return frozenset(word for word in words if not _POLITE.fullmatch(word)) or frozenset(words)


def same(first: str, second: str) -> bool:
    """True for near-duplicates."""
    one, two = key(first), key(second)
    union = one | two
    return not union or len(one & two) >= SAME * len(union)


def distinct(hints: Sequence[str], limit: int) -> list[str]:
    """The last `limit` distinct of `hints` (newest last), newest last; of near-duplicates the newest stays."""
    kept: list[str] = []
    for hint in reversed(hints):
        if len(kept) == limit:
            break
        if hint.strip() and not any(same(hint, other) for other in kept):
            kept.append(hint)
    return kept[::-1]


def with_own(own: str, remembered: Sequence[str], limit: int) -> list[str]:
    """The hints that the teacher of a turn is given, newest last: the turn's own, and the newest of `remembered` up to
    `limit` together.
    """
    return [*(hint for hint in remembered if not same(hint, own)), own][-limit:]
