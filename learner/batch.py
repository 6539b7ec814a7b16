"""Choose the samples of the next step.

`batch_size` counts the turns that teach under the method (a hint, a reward); under `rehearse` also the turns that a
person answered, under `binary` every judged turn, as published. Others teach nothing and come along uncounted. The
oldest come first, none is skipped.

Under `rehearse` the first update waits for the first signal that can teach, and takes all samples that wait: their
prompts count as earlier prompts. Later updates need no new signal, since remembered hints teach on rehearsals.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from openclaw_rl.learner.attempts import accepted_attempts, with_attempts
from openclaw_rl.learner.guard.held_out import hold_back, set_aside
from openclaw_rl.learner.hints import HintMemory
from openclaw_rl.learner.judge.signals import stale, version_lag
from openclaw_rl.learner.methods import Method
from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.records import Quarantine, Sample
from openclaw_rl.shared.settings.settings import Settings

WAITING_AT_MOST = 1024
"""Samples read from the journal at a time; more only if these make no batch."""


class Batch(msgspec.Struct, frozen=True):
    """The samples of a step and the hints that its teacher gets; or, without samples, the reason for `waiting`.
    `held_back` are turns of the batch that are kept for the guard.
    """

    samples: Sequence[Sample] = ()
    hints: Sequence[str] = ()
    waiting: str = ""
    detail: str = ""
    held_back: Sequence[str] = ()


class Batches:
    """Chooses batches from the journal."""

    def __init__(self, journal: AsyncJournal, settings: Settings, method: Method, memory: HintMemory) -> None:
        self._journal = journal
        self._memory = memory
        self._settings = settings
        self._method = method
        self._looked = -1

    async def next(self, *, news: bool) -> Batch | None:
        """The next batch; `None` if nothing has changed since the last call (`news`: something has)."""
        size = self._settings.learning.turns_a_step
        ready = await self._journal.ready_count()
        if ready == self._looked and not news:
            return None
        self._looked = -1  # try again after a failure
        batch = await self._look(ready, size)
        if batch.waiting:
            self._looked = ready
            return batch
        share = self._settings.guard.held_back if self._settings.guard.enabled else 0.0
        kept, held_back = await hold_back(self._journal, batch.samples, share)
        if not kept:
            await set_aside(self._journal, held_back)
            return Batch(waiting="waiting for samples", detail=f"all {len(held_back)} were held back for the guard")
        return Batch(kept, batch.hints, held_back=held_back)

    async def _look(self, ready: int, size: int) -> Batch:
        """The next batch, samples to hold back included; or the reason for waiting."""
        if ready < size:
            return Batch(waiting="waiting for samples", detail=f"{ready} of {size}")
        attempts = await accepted_attempts(self._journal) if self._method.attempts else {}
        if self._method.hints != "none" and ready <= WAITING_AT_MOST:
            # Do not read turns with long prompts again and again only to leave them waiting.
            words = await self._journal.ready_words(
                guesses=self._method.rewards == "all", answered=self._method.rollouts, turn_ids=list(attempts)
            )
            if words < size:
                return _too_few(words, size, ready)
        remembered = await self._memory.standing() if self._method.hints == "remembered" else []
        most = WAITING_AT_MOST
        while True:
            found = await self._journal.ready_samples(most)
            fresh = await self._of_long_sessions(await self._without_stale(found))
            fresh = await with_attempts(self._journal, self._settings, fresh, attempts)
            batch = await self._batch_of(fresh, remembered, size, full=len(found) == most)
            if not batch.waiting or len(found) < most:
                return batch
            if len(fresh) == len(found) and not await self._journal.ready_signal():
                return batch
            most *= 2  # samples that teach come after these

    async def _batch_of(self, fresh: Sequence[Sample], remembered: Sequence[str], size: int, *, full: bool) -> Batch:
        """A batch of these samples, the oldest that wait. With `full` more wait after them: then fewer than `size`
        counted ones are enough, if there is anything to teach.
        """
        counted = [await self._counts(sample) for sample in fresh]
        taught = self._method.rollouts and bool(remembered) and await self._journal.next_version_number() > 1
        informative = [self._method.informative(sample) for sample in fresh]
        if sum(counted) < size and not (full and (taught or any(informative))):
            return _too_few(sum(counted), size, len(fresh))
        if self._method.rollouts and not taught:
            counted = informative
            if not remembered and not any(counted):
                return Batch(waiting="waiting for a first signal", detail=f"{len(fresh)} samples wait")
        return Batch(_oldest(fresh, counted, size), remembered)

    async def _counts(self, sample: Sample) -> bool:
        if self._method.hints == "none" or self._method.informative(sample):
            return True
        if not self._method.rollouts:
            return False
        answered = await self._journal.next_state(sample.turn_id) if sample.turn_id else None
        return answered is not None and answered.role == "user"

    async def _without_stale(self, samples: Sequence[Sample]) -> list[Sample]:
        fresh = []
        lineage = await self._journal.lineage()
        for sample in samples:
            reason = stale(version_lag(sample, lineage), self._settings.learning.max_version_lag)
            if reason and sample.turn_id is not None:
                await self._journal.add_quarantine(Quarantine(turn_id=sample.turn_id, reason=reason))
            else:
                fresh.append(sample)
        return fresh

    async def _of_long_sessions(self, samples: Sequence[Sample]) -> list[Sample]:
        """The samples of sessions with `min_turns` main turns; those of shorter sessions wait until these end."""
        least = self._settings.learning.min_turns
        if least == 1:
            return list(samples)
        long = []
        for sample in samples:
            assert sample.turn_id is not None, "the journal holds samples of turns only"
            turns, over = await self._journal.main_turns(sample.turn_id)
            if turns >= least:
                long.append(sample)
            elif over:
                reason = f"its session ended after {turns} main turns, fewer than min_turns = {least}"
                await self._journal.add_quarantine(Quarantine(turn_id=sample.turn_id, reason=reason))
        return long


def _too_few(count: int, size: int, ready: int) -> Batch:
    return Batch(waiting="waiting for samples", detail=f"{count} of {size}, {ready} with those that do not count")


def _oldest(samples: Sequence[Sample], counted: Sequence[bool], size: int) -> list[Sample]:
    """The oldest samples up to `size` that count, with those between them that do not."""
    chosen: list[Sample] = []
    number = 0
    for sample, counts in zip(samples, counted, strict=True):
        if number == size:
            break
        chosen.append(sample)
        number += counts
    return chosen
