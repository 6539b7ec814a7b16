"""Remembered hints: distinct wishes of the user, without those that accepted answers contradict.

A judge can be wrong, and people change their minds. That shows in the answers accepted after a hint: does the base find
them likelier with the hint than with a request about something else, or less likely? With a small chat model any
request makes answers that were given without it less likely, the accepted ones too. So every hint has a balance, at
most `MOST` on either side of 0: each time it is said adds 1, each accepted answer adds or takes at most 1. Below 0 the
hint has fallen, and is taught on its own turns alone until its balance is back at 0. The journal keeps the balances: a
hint that fell stays fallen, however long ago it was said, and after a restart.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import msgspec

from openclaw_rl.learner.rollouts.rehearsal import PromptBudget, hinted_prompts
from openclaw_rl.shared.engine.protocol import Engine, Priority
from openclaw_rl.shared.errors import EngineError
from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.journal.wishes import BALANCES, HintBalance, HintBalances
from openclaw_rl.shared.messages.images import holds_placeholder, images_of, misplaced, shown_again
from openclaw_rl.shared.messages.wishes import same
from openclaw_rl.shared.records import Turn
from openclaw_rl.shared.rendering.prompter import Prompter
from openclaw_rl.shared.settings.settings import Settings

log = logging.getLogger(__name__)

WINDOW = 64
"""Number of judgements to look back on for accepted answers."""
MENTIONS = 512
"""Number of mentions, the newest, that are counted at a time."""
MOST = 8.0
"""The largest balance of a hint, for it and against it: so a change of mind takes at most this many answers."""
CLEAR = 4.0
"""Nats (of a whole answer) that a hint must change for a whole vote; less is a part of one. Answers of a small chat
model differ by about as much among each other (`bench.real_model.hint_effects`).
"""
UNRELATED = "Please call me Sam from now on."
"""The request about something else."""


class HintMemory:
    """The hints that the teacher is given, newest last."""

    def __init__(self, journal: AsyncJournal, engine: Engine, prompter: Prompter, settings: Settings) -> None:
        self._journal = journal
        self._engine = engine
        self._prompter = prompter
        self._settings = settings

    async def standing(self) -> list[str]:
        """The newest distinct hints that have not fallen; all known ones if the engine cannot score, or has dropped
        the base. None of those that a person dropped.
        """
        dropped = await self._journal.dropped_wishes()
        return [hint for hint in await self._not_fallen() if not any(same(hint, one) for one in dropped)]

    async def _not_fallen(self) -> list[str]:
        found = await self._read()
        before = msgspec.json.encode(found)
        limit = self._settings.learning.max_hints
        try:
            await self._count_mentions(found, 2 * limit)
            await self._count_accepted(found)
        except EngineError as error:
            if error.status not in (404, 501):
                raise
            log.info("remembered hints are not held against accepted answers: %s", error)
            return [hint.text for hint in found.hints][-limit:]
        finally:
            if msgspec.json.encode(found) != before:
                await self._journal.set_control(BALANCES, _without_texts(found))
        return [hint.text for hint in found.hints if hint.balance >= 0][-limit:]

    async def _read(self) -> HintBalances:
        """The balances of the journal, without the hints of sessions that were forgotten."""
        stored = await self._journal.get_control(BALANCES)
        try:
            found = msgspec.json.decode(stored, type=HintBalances) if stored else HintBalances()
        except msgspec.MsgspecError:  # damaged: counted again
            return HintBalances()
        texts = dict(await self._journal.hint_mentions([hint.last for hint in found.hints]))
        found.hints = [
            msgspec.structs.replace(hint, text=texts[hint.last]) for hint in found.hints if hint.last in texts
        ]
        return found

    async def _count_mentions(self, found: HintBalances, limit: int) -> None:
        """Add each mention since the last look; the newest `limit` hints stay."""
        for number, text in await self._journal.hints_after(found.mentions, MENTIONS):
            known = next((hint for hint in found.hints if same(hint.text, text)), None)
            if known is None:
                known = HintBalance(number, number, 0.0)
            else:
                found.hints.remove(known)
            known.last, known.text = number, text
            known.balance = _bounded(known.balance + 1.0)
            found.hints.append(known)
            found.mentions = number
        del found.hints[:-limit]

    async def _count_accepted(self, found: HintBalances) -> None:
        """Let the answers that were accepted since the last look vote, the oldest first. Prompts that cost more than
        `max_sample_tokens` together (see `PromptBudget`) wait for the next look.
        """
        left = PromptBudget(self._settings.learning.max_sample_tokens)
        first = True
        for number, turn_id in (await self._journal.accepted_answers(WINDOW))[::-1]:
            if number <= found.accepted:
                continue
            asked = [hint for hint in found.hints if hint.first < number]
            turn = await self._journal.turn(turn_id) if asked else None
            if turn is not None:
                shown = await self._first_asked(turn)
                if not left.afford(shown.prompt_ids) and not first:
                    return
                first = False
                effects = await self._effects([hint.text for hint in asked], turn, shown)
                for hint, effect in zip(asked, effects, strict=True):
                    hint.balance = _bounded(hint.balance + max(-1.0, min(1.0, effect / CLEAR)))
            found.accepted = number

    async def _effects(self, hints: Sequence[str], turn: Turn, asked: Turn) -> list[float]:
        """For each hint log base(answer | hint) − log base(answer | unrelated request), summed over the answer's
        tokens; 0 if it cannot be asked. `asked` is the turn whose prompt the answer of `turn` belongs to.
        """
        nothing = [0.0] * len(hints)
        images = images_of(asked)
        if misplaced(asked) or (
            images and (asked is not turn or holds_placeholder(turn.response_ids, asked.prompt_ids, images))
        ):
            return nothing
        prompts = await asyncio.to_thread(hinted_prompts, self._prompter, asked, [UNRELATED, *hints])
        if not prompts:
            return nothing
        answer = msgspec.structs.replace(asked, response_ids=turn.response_ids)
        try:
            unrelated, *under = [await self._logprob(answer, prompt) for prompt in prompts]
        except EngineError as error:
            if error.status != 400:
                raise
            log.info("no hint is held against turn %s: %s", turn.turn_id, error)
            return nothing
        return [value - unrelated for value in under]

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


def _bounded(balance: float) -> float:
    return max(-MOST, min(MOST, balance))


def _without_texts(balances: HintBalances) -> str:
    hints = [msgspec.structs.replace(hint, text="") for hint in balances.hints]
    return msgspec.json.encode(msgspec.structs.replace(balances, hints=hints)).decode()


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
