"""Hold accepted answers out of training: the guard asks how likely a candidate finds them.

A fixed share of the accepted turns, chosen by their ids alone, is never trained on. An acceptance counts only while it
stands (`standing`): a user who praised plain answers and then complains about them has changed their mind.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from openclaw_rl.shared.errors import JournalError
from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.journal.learning import HELD_BACK
from openclaw_rl.shared.journal.views import TurnReaction
from openclaw_rl.shared.records import Quarantine, Sample

REASON = f"{HELD_BACK}: it is never trained on, and every new version is asked how likely the answer is"
WINDOW = 32
"""Reactions of people before a batch that count."""


def is_held_back(sample: Sample, share: float) -> bool:
    """True for a fixed `share` of the samples with a positive reward and no hint."""
    if sample.turn_id is None or sample.hint or not sample.reward or sample.reward < 0:
        return False
    return chosen_for_guard(sample.turn_id, share)


def chosen_for_guard(turn_id: str, share: float) -> bool:
    """True for the fixed `share` of all turns whose acceptances are held out."""
    return chosen(f"guard {turn_id}", share)


def chosen(key: str, share: float) -> bool:
    """True for a fixed `share` of all keys; a larger share contains a smaller one."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8]) < share * 2**64


async def hold_back(journal: AsyncJournal, samples: Sequence[Sample], share: float) -> tuple[list[Sample], list[str]]:
    """The samples of a batch that may be trained on, and the turns that are held out (`set_aside` records them).

    Only answers that a person accepted are held out: environments measure their rewards themselves.
    """
    kept: list[Sample] = []
    held_out: list[str] = []
    for sample in samples:
        if is_held_back(sample, share) and sample.turn_id is not None and await _by_a_person(journal, sample.turn_id):
            held_out.append(sample.turn_id)
        else:
            kept.append(sample)
    return kept, held_out


async def set_aside(journal: AsyncJournal, turn_ids: Sequence[str], reason: str = REASON) -> None:
    """Take turns out of training: held out for the guard, or dropped with their rejected batch."""
    for turn_id in turn_ids:
        try:
            await journal.add_quarantine(Quarantine(turn_id=turn_id, reason=reason))
        except JournalError:
            if await journal.turn(turn_id) is not None:
                raise  # else it was forgotten meanwhile


def standing(before: Sequence[TurnReaction], batch: Sequence[TurnReaction] = ()) -> list[str]:
    """The turns whose acceptance stands, held-out ones first, each kind newest first.

    `before` are the reactions before a batch, newest first, and `batch` those to its own turns. An acceptance falls
    when the complaints after it outnumber the acceptances since, itself included. Of the batch only complaints with
    reasons count, since they are wishes; the guard has to judge the rest. Answers that an earlier version learned from
    come last; the candidate's own step has seen neither kind.
    """
    held_out: list[str] = []
    others: list[str] = []
    complaints = sum(one.reasoned and one.score < 0 for one in batch)
    accepted = 0
    for one in before:
        if one.score < 0:
            complaints += 1
        elif one.score > 0 and (one.held_back or not one.set_aside):
            accepted += 1
            if complaints <= accepted:
                (held_out if one.held_back else others).append(one.turn_id)
    return [*held_out, *others]


async def _by_a_person(journal: AsyncJournal, turn_id: str) -> bool:
    came = await journal.next_state(turn_id)
    if came is not None and came.role == "user":
        return True
    return any((one.score or 0.0) > 0 for one in await journal.feedback_for(turn_id))
