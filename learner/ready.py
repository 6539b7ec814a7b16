"""Read the samples that a step may take: fresh ones, of sessions that are long enough, and whole groups of attempts.

A sample of a group waits until its group is complete, and gets its advantage from the comparison with the others
(`learner.groups`). What teaches nothing by that is set aside as soon as its group is complete.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

import msgspec

from openclaw_rl.learner.attempts import accepted_attempts, with_attempts
from openclaw_rl.learner.groups import GroupFigures, compare, group_figures, is_complete
from openclaw_rl.learner.judge.signals import aged, version_lag
from openclaw_rl.learner.methods import Method
from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.journal.views import WaitingGroup
from openclaw_rl.shared.messages.wishes import same
from openclaw_rl.shared.records import Quarantine, Sample, now
from openclaw_rl.shared.settings.settings import Settings

CONSTANT = "constant group: all attempts at its task got the same reward at this step, so there is nothing to compare"
NOTHING = "its group has nothing to teach this method"


class ReadySamples:
    """Reads them from the journal. The groups are those of the last `refresh`; `outside` is the number of ready samples
    in no group.
    """

    def __init__(self, journal: AsyncJournal, settings: Settings, method: Method) -> None:
        self._journal = journal
        self._settings = settings
        self._method = method
        self._waiting: list[WaitingGroup] = []
        self._complete: dict[str, tuple[int, int]] = {}  # for each group its samples, and those of them that teach
        self._figures: dict[str, GroupFigures] = {}
        self.outside = 0

    @property
    def count(self) -> int:
        """The number of samples that a step may take."""
        return self.outside + sum(samples for samples, _ in self._complete.values())

    @property
    def informative(self) -> int:
        """The number of those in groups that teach."""
        return sum(informative for _, informative in self._complete.values())

    @property
    def groups(self) -> list[str]:
        """The complete groups, the oldest first."""
        return list(self._complete)

    @property
    def incomplete(self) -> str:
        """A sentence about the samples that wait for their groups, "" without any."""
        samples = sum(group.ready for group in self._waiting)
        return f"; {samples} more wait for their groups ({len(self._waiting)})" if samples else ""

    async def refresh(self) -> int:
        """Find the complete groups, and set aside what teaches nothing in them; returns `count`."""
        ready, found = await self._journal.ready_count(), await self._journal.waiting_groups()
        self.outside = ready - sum(group.ready for group in found)
        known, self._complete, self._waiting = self._complete, {}, []
        for group in found:
            if not is_complete(group, now(), self._settings.learning.group_patience):
                self._waiting.append(group)
                continue
            examined = known.get(group.name, (0, 0))
            if examined[0] != group.ready:
                examined = await self._examine(group.name)
            if examined[0]:
                self._complete[group.name] = examined
        return self.count

    async def _examine(self, group: str) -> tuple[int, int]:
        attempts = await accepted_attempts(self._journal) if self._method.attempts else {}
        samples = await self._usable(await self._journal.ready_samples(0, [group]), attempts)
        return len(samples), sum(map(self._method.informative, samples))

    async def read(self, most: int, attempts: Mapping[str, Sequence[str]]) -> tuple[list[Sample], int]:
        """These samples, oldest first, each group in one piece, and how many were looked at: at least `most`, or all.
        `attempts` are accepted ones (`learner.attempts`).
        """
        found = await self._journal.ready_samples(most, self.groups)
        return await self._usable(found, attempts), len(found)

    def figures(self) -> dict[str, float]:
        """The figures of the groups that were complete since `forget_figures`."""
        return group_figures(self._figures)

    def forget_figures(self) -> None:
        """They belong to a version now."""
        self._figures.clear()

    async def _usable(self, samples: Sequence[Sample], attempts: Mapping[str, Sequence[str]]) -> list[Sample]:
        fresh = await self._of_long_sessions(await self._without_stale(samples))
        dropped = await self._journal.dropped_wishes()
        fresh = [_without_wish(sample, dropped) for sample in fresh] if dropped else fresh
        fresh = await with_attempts(self._journal, self._settings, fresh, attempts)
        usable: list[Sample] = []
        for group, found in groupby(fresh, key=lambda sample: sample.group):
            members = list(found)
            usable += await self._compared(group, members) if group else members
        return usable

    async def _compared(self, group: str, samples: Sequence[Sample]) -> list[Sample]:
        """The samples of a group with their advantages, without those that are set aside."""
        attempts = await self._journal.group_attempts(group)
        members, constant, others = compare(samples, attempts, self._settings.learning.group_advantage)
        informative = self._method.informative
        kept = [sample for sample in members if sample.sample_id not in constant or informative(sample)]
        teaches = any(map(informative, kept))
        for sample in members:
            if not teaches or sample not in kept:
                await self._set_aside(sample, CONSTANT if sample.sample_id in constant else NOTHING)
        self._figures[group] = GroupFigures.of(attempts, constant=not teaches)
        return [*others, *(kept if teaches else ())]

    async def _without_stale(self, samples: Sequence[Sample]) -> list[Sample]:
        fresh = []
        lineage, most = await self._journal.lineage(), self._settings.learning.max_version_lag
        for sample in samples:
            lag = version_lag(sample, lineage)
            spoken = lag > most and sample.explicit and bool(await self._journal.feedback_for(sample.turn_id or ""))
            found, reason = aged(sample, lag, most, self._method, spoken=spoken)
            if reason:
                await self._set_aside(sample, reason)
            else:
                fresh.append(found)
        return fresh

    async def _of_long_sessions(self, samples: Sequence[Sample]) -> list[Sample]:
        """The samples of sessions with `min_turns` main turns; those of shorter sessions wait until these end, those of
        complete groups do not wait.
        """
        least = self._settings.learning.min_turns
        if least == 1:
            return list(samples)
        long = []
        for sample in samples:
            turns, over = await self._journal.main_turns(sample.turn_id or "")
            if turns >= least:
                long.append(sample)
            elif over or sample.group:
                reason = f"its session ended after {turns} main turns, fewer than min_turns = {least}"
                await self._set_aside(sample, reason)
        return long

    async def _set_aside(self, sample: Sample, reason: str) -> None:
        assert sample.turn_id is not None, "the journal holds samples of turns only"
        await self._journal.add_quarantine(Quarantine(turn_id=sample.turn_id, reason=reason))


def _without_wish(sample: Sample, dropped: Sequence[str]) -> Sample:
    """A sample without its hint if a person dropped that wish."""
    if sample.hint is None or not any(same(sample.hint, one) for one in dropped):
        return sample
    return msgspec.structs.replace(sample, hint=None)
