"""Choose the samples of the next step.

`batch_size` counts the turns that teach under the method (a hint, a reward); under `rehearse` also the turns that a
person answered, under `binary` every judged turn, as published. Others teach nothing and come along uncounted. The
oldest come first, none is skipped. Groups of attempts come whole, at the place of their newest sample, and of them only
the turns that teach count (`learner.ready`).

A backlog is learned from before it is too old: a batch takes as many samples as each later one must take too, so that
none of those that wait, for a step or for a judge, falls behind by more than `max_version_lag` updates. For turns that
the judge still has, such a batch waits as long as the judge makes progress, but no longer than some minutes; or hours,
up to a day for many, where the step would make them too old: once in an outage of the judge, not at every step.

Under `rehearse` the first update waits for the first signal that can teach, and takes all samples that wait: their
prompts count as earlier prompts. Later updates need no new signal, since remembered hints teach on rehearsals.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import groupby

import msgspec

from openclaw_rl.learner.attempts import accepted_attempts
from openclaw_rl.learner.guard.held_out import hold_back, set_aside
from openclaw_rl.learner.hints import HintMemory
from openclaw_rl.learner.methods import Method
from openclaw_rl.learner.ready import ReadySamples
from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.settings.settings import Settings

WAITING_AT_MOST = 1024
"""Samples read from the journal at a time; more only if these make no batch, or fewer would be too few for a backlog.
"""

MOST_SAMPLES = 8192
"""Samples of a batch that grows with the backlog: their prompts are in memory together."""

PATIENCE_SECONDS = 600.0
"""A batch that could be made waits no longer than this for the judge."""

QUIET_SECONDS = 60.0
"""A judge that has made no sample in this time is not waited for."""

LAST_CHANCE_SECONDS = 7200.0
"""Both, where the step would make turns too old that the judge still has; for all steps of one outage together."""

OUTAGE_SECONDS = 86400.0
"""The same, where those turns are more than the samples that the step has: the judge is away, and people's words alone
would take step after step meanwhile. After that they no longer wait: the judge may never come back.
"""


class Batch(msgspec.Struct, frozen=True):
    """The samples of a step and the hints that its teacher gets; or, without samples, the reason for `waiting`.
    `held_back` are turns of the batch that are kept for the guard.
    """

    samples: Sequence[Sample] = ()
    hints: Sequence[str] = ()
    waiting: str = ""
    detail: str = ""
    held_back: Sequence[str] = ()


class _Gathering(msgspec.Struct):
    """A batch that waits for the judge until `least` samples are ready, of `waiting` turns in all. `ready` are there
    since `changed`; times as of `time.monotonic`. `at_stake`: turns that its step would make too old, while `begun`
    samples were ready; the judge has them, and none after the row `newest`.
    """

    least: int
    waiting: int
    ready: int
    since: float
    changed: float
    begun: int
    at_stake: int
    newest: int

    def batch(self) -> Batch:
        """The reason for waiting."""
        detail = f"{self.ready} of the {self.least} turns that this step takes, for {self.waiting} wait in all"
        return Batch(waiting="waiting for the judge", detail=detail)

    def over(self, ready: int, oldest: int, stuck: float) -> bool:
        """True if there are enough samples, no more to come, or the wait was long enough. `oldest`: the row of the
        oldest turn that the judge has, 0 if it has none; it is the oldest since `stuck` seconds. Samples of people's
        words, which need no judge, are not enough while turns are at stake.
        """
        current = time.monotonic()
        if ready != self.ready:
            self.ready, self.changed = ready, current
        quiet, patience = QUIET_SECONDS, PATIENCE_SECONDS
        last_chance = LAST_CHANCE_SECONDS if self.at_stake <= self.begun else OUTAGE_SECONDS
        at_stake = self.at_stake > 0 and stuck < last_chance
        if at_stake:
            quiet = patience = last_chance
        waited = current - self.changed >= quiet or current - self.since >= patience
        return waited or not oldest or (ready >= self.least and (not at_stake or oldest > self.newest))


class Batches:
    """Chooses batches from the journal."""

    def __init__(self, journal: AsyncJournal, settings: Settings, method: Method, memory: HintMemory) -> None:
        self._journal = journal
        self._memory = memory
        self._settings = settings
        self._method = method
        self._ready = ReadySamples(journal, settings, method)
        self._looked = -1
        self._gathering: _Gathering | None = None
        self._oldest = (0, 0.0)  # the oldest turn that waits for the judge, and since when it is the oldest

    def group_figures(self) -> dict[str, float]:
        """Figures of the groups of attempts that were complete since `forget_group_figures`, if there were any."""
        return self._ready.figures()

    def forget_group_figures(self) -> None:
        """A version has them."""
        self._ready.forget_figures()

    async def next(self, *, news: bool) -> Batch | None:
        """The next batch; `None` if nothing has changed since the last call (`news`: something has)."""
        size = self._settings.learning.turns_a_step
        ready = await self._ready.refresh()
        oldest, _ = await self._journal.waiting_rows()
        if oldest != self._oldest[0]:
            self._oldest = oldest, time.monotonic()
        gathering = self._gathering
        if gathering is not None:
            if not gathering.over(ready, oldest, time.monotonic() - self._oldest[1]):
                return gathering.batch()
            self._gathering = None
        elif ready == self._looked and not news:
            return None
        self._looked = -1  # try again after a failure
        batch = await self._look(ready, size, gathered=gathering is not None)
        if batch.waiting:
            self._looked = ready
            return batch
        share = self._settings.guard.held_back if self._settings.guard.enabled else 0.0
        kept, held_back = await hold_back(self._journal, batch.samples, share)
        if not kept:
            await set_aside(self._journal, held_back)
            return Batch(waiting="waiting for samples", detail=f"all {len(held_back)} were held back for the guard")
        return Batch(kept, batch.hints, held_back=held_back)

    async def _look(self, ready: int, size: int, *, gathered: bool) -> Batch:
        """The next batch, samples to hold back included; or the reason for waiting. `gathered`: it has waited for the
        judge already.
        """
        if ready < size:
            return Batch(waiting="waiting for samples", detail=f"{ready} of {size}{self._ready.incomplete}")
        attempts = await accepted_attempts(self._journal) if self._method.attempts else {}
        if ready <= WAITING_AT_MOST:
            # Do not read turns with long prompts again and again only to leave them waiting.
            words = self._ready.outside
            if self._method.hints != "none":
                words = await self._journal.ready_words(
                    guesses=self._method.rewards == "all", answered=self._method.rollouts, turn_ids=list(attempts)
                )
            words += self._ready.informative
            if words < size:
                return self._too_few(words, size, ready)
        least, at_stake = await self._keeping_up(ready, size)
        if least > ready and not gathered and self._method.ages:
            now = time.monotonic()
            waiting = ready + await self._journal.waiting_count()
            _, newest = await self._journal.waiting_rows()
            self._gathering = _Gathering(min(least, waiting), waiting, ready, now, now, ready, at_stake, newest)
            return self._gathering.batch()
        remembered = await self._memory.standing() if self._method.hints == "remembered" else []
        most = max(WAITING_AT_MOST, min(least, MOST_SAMPLES))
        while True:
            fresh, looked_at = await self._ready.read(most, attempts)
            batch = await self._batch_of(fresh, remembered, size, least, full=looked_at >= most)
            if not batch.waiting or looked_at < most:
                return batch
            if len(fresh) == looked_at and not await self._journal.ready_signal():
                return batch
            most *= 2  # samples that teach come after these

    async def _keeping_up(self, ready: int, size: int) -> tuple[int, int]:
        """The number of samples that this step must take and each later one too, so that none of those that wait
        becomes too old; and the number of turns that the judge still has and for which this step is the last one.
        """
        if ready + await self._journal.waiting_count() <= size or await self._journal.deaths("step"):
            return 0, 0  # a batch that ended the learner may have been too large
        lineage, most = await self._journal.lineage(), self._settings.learning.max_version_lag
        backlog = await self._journal.backlog(self._ready.groups)
        # The steps that can still take each; 0 for those that keep, and those that are too old already.
        left = [max(0, most + 1 - max(map(lineage.updates_from, versions))) if versions else 0 for versions in backlog]
        least = max((-(-place // steps) for place, steps in enumerate(left, 1) if steps), default=0)
        return least, left[ready:].count(1)

    async def _batch_of(
        self, fresh: Sequence[Sample], remembered: Sequence[str], size: int, least: int, *, full: bool
    ) -> Batch:
        """A batch of these samples, the oldest that wait, with at least `least` of them if so many are there. With
        `full` more wait after them: then fewer than `size` counted ones are enough, if there is anything to teach.
        """
        counted = [await self._counts(sample) for sample in fresh]
        taught = self._method.rollouts and bool(remembered) and await self._journal.next_version_number() > 1
        informative = [self._method.informative(sample) for sample in fresh]
        if sum(counted) < size and not (full and (taught or any(informative))):
            return self._too_few(sum(counted), size, len(fresh))
        if self._method.rollouts and not taught:
            counted = informative
            if not remembered and not any(counted):
                return Batch(waiting="waiting for a first signal", detail=f"{len(fresh)} samples wait")
        return Batch(_oldest(fresh, counted, size, min(least, MOST_SAMPLES)), remembered)

    async def _counts(self, sample: Sample) -> bool:
        if self._method.informative(sample) or (self._method.hints == "none" and not sample.group):
            return True
        if sample.group or not self._method.rollouts:
            return False
        answered = await self._journal.next_state(sample.turn_id) if sample.turn_id else None
        return answered is not None and answered.role == "user"

    def _too_few(self, count: int, size: int, ready: int) -> Batch:
        detail = f"{count} of {size}, {ready} with those that do not count{self._ready.incomplete}"
        return Batch(waiting="waiting for samples", detail=detail)


def _oldest(samples: Sequence[Sample], counted: Sequence[bool], size: int, least: int) -> list[Sample]:
    """The oldest samples up to `size` that count, with those between them that do not; at least `least` in all. A group
    is taken whole.
    """
    chosen: list[Sample] = []
    number = 0
    pairs = zip(samples, counted, strict=True)
    for _, found in groupby(pairs, key=lambda pair: pair[0].group or pair[0].sample_id):
        if number >= size and len(chosen) >= least:
            break
        for sample, counts in found:
            chosen.append(sample)
            number += counts
    return chosen
