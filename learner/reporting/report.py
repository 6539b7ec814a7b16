"""Every step's figures next to the trainer's own, and their way to Weights & Biases and TensorBoard.

The age and kinds of a step's samples, and how judging went, are kept with the version, so that `/metrics`, W&B and
TensorBoard show the same after a restart.

A reporter reads from the journal the versions that its sink lacks, rejected ones too, and writes each once, under its
version number: that only grows, while the trainer's step count goes back when a step is undone. A late start writes the
whole history. Failures never reach learning: they are shown in the status, and tried again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from typing import Protocol

from openclaw_rl.learner.judge.signals import version_lag
from openclaw_rl.learner.progress import Progress
from openclaw_rl.shared.errors import JournalError
from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.records import PolicyVersion, Sample

log = logging.getLogger(__name__)

POLL = 2.0
CLOSING_SECONDS = 3.0
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 300.0
JUDGE = "judge/"
"""Names of counts since the journal began: `judge/judgements`, `/without_score`, `/votes`, `/failed`."""


class SinkError(Exception):
    """A sink could not be opened or written."""


class Sink(Protocol):
    """A destination of figures. Called from one thread at a time, which may block; failures are `SinkError`."""

    name: str

    def open(self, last: int) -> int:
        """Make it ready; returns the last version it has, or `last` (from the journal) if it does not know."""
        ...

    def write(self, version: int, time: float, figures: Mapping[str, float]) -> None:
        """One version's figures, made at a time (Unix seconds)."""
        ...

    def kept(self) -> int:
        """The last version whose figures would survive a crash; once it is closed, the last one written."""
        ...

    def close(self) -> None:
        """Finish; never raises."""
        ...


async def step_figures(
    journal: AsyncJournal, consumed: Sequence[Sample], trained: Sequence[Sample], rollouts: Sequence[Sample]
) -> dict[str, float]:
    """`lag/mean` and `lag/max`: updates between a turn's answer and the live version, over the turns that teach
    (`trained`). `mix/*`: counts of turns that teach, of `consumed` turns that do not (`mix/silent`), of rehearsals and
    anchors; and of the turns that teach, those with a hint and those with each signal (`mix/judge`, `mix/feedback`,
    `mix/outcome`).
    """
    lineage = await journal.lineage()
    lags = [version_lag(sample, lineage) for sample in trained]
    signals = {"judge": 0, "feedback": 0, "outcome": 0}
    for sample in trained:
        judgement = await journal.judgement(sample.turn_id) if sample.turn_id else None
        if judgement is not None:
            signals[judgement.signal] += 1
    counts = await journal.learning_figures()
    return {
        "lag/mean": sum(lags) / len(lags) if lags else 0.0,
        "lag/max": float(max(lags, default=0)),
        "mix/turns": float(len(trained)),
        "mix/silent": float(len(consumed) - len(trained)),
        "mix/hints": float(sum(bool(sample.hint) for sample in trained)),
        "mix/rehearsals": float(sum(sample.origin == "rehearsal" for sample in rollouts)),
        "mix/revisions": float(sum(sample.origin == "revision" for sample in rollouts)),
        "mix/demonstrations": float(sum(sample.origin == "demonstration" for sample in rollouts)),
        "mix/anchors": float(sum(sample.origin == "anchor" for sample in rollouts)),
        **{f"mix/{name}": float(count) for name, count in signals.items()},
        **{JUDGE + name: float(getattr(counts, name)) for name in ("judgements", "without_score", "votes", "failed")},
    }


def judging_since(figures: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    """Rates of judging between two steps: `judge/failure_rate`, the share of votes that failed, and
    `judge/without_score_rate`, that of judgements without a score; each only if there were any.
    """
    rates = {}
    for rate, part, whole in (
        ("failure_rate", "failed", "votes"),
        ("without_score_rate", "without_score", "judgements"),
    ):
        count, of = (figures.get(JUDGE + name, 0.0) - before.get(JUDGE + name, 0.0) for name in (part, whole))
        if of > 0:
            rates[JUDGE + rate] = count / of
    return rates


def figures_of(version: PolicyVersion, before: PolicyVersion | None) -> dict[str, float]:
    """A version's figures, with `version`, whether it was `rejected`, and how judging went since the version
    `before`.
    """
    rates = judging_since(version.metrics, {} if before is None else before.metrics)
    state = {"version": float(version.number), "rejected": float(version.state == "rejected")}
    return {**version.metrics, **rates, **state}


class Reporter:
    """Keeps one sink up to date."""

    def __init__(self, journal: AsyncJournal, sink: Sink, progress: Progress) -> None:
        self._journal = journal
        self._sink = sink
        self._progress = progress
        self._key = f"reported to {sink.name}"
        self._last: int | None = None
        self._marked = 0
        self._before: PolicyVersion | None = None

    async def run(self) -> None:
        """Write new figures every two seconds; after a failure open the sink again, with growing pauses."""
        pause = FIRST_PAUSE
        try:
            while True:
                try:
                    await self.once()
                    pause = FIRST_PAUSE
                    self._progress.note(self._sink.name, "")
                    await asyncio.sleep(POLL)
                except (SinkError, JournalError) as error:
                    self._progress.note(self._sink.name, f"figures are not reported: {error}")
                    log.warning(
                        "%s: figures are not reported: %s; trying again in %.0f s", self._sink.name, error, pause
                    )
                    await self.close()
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, LONGEST_PAUSE)
        finally:
            await self.close()

    async def once(self) -> int:
        """Write new figures; returns the number of versions. Raises `SinkError` or `JournalError`."""
        if self._last is None:
            self._marked = int(await self._journal.get_control(self._key, "0"))
            self._last = await asyncio.to_thread(self._sink.open, self._marked)
            self._before = await self._of_a_step(self._last)
        newest = (await self._journal.learning_figures()).newest or 0
        written = 0
        while self._last < newest:
            version = await self._journal.version(self._last + 1)
            if version is not None and version.state == "candidate":
                break  # not decided yet
            if version is not None and _made_by_a_step(version):
                figures = figures_of(version, self._before)
                await asyncio.to_thread(self._sink.write, version.number, version.time, figures)
                self._before = version if version.metrics else self._before
                written += 1
            self._last += 1
        await self._mark()
        return written

    async def _mark(self) -> None:
        """Record in the journal how far the sink is, for the next reporter."""
        kept = self._sink.kept()
        if kept > self._marked:
            await self._journal.set_control(self._key, str(kept))
            self._marked = kept

    async def _of_a_step(self, number: int) -> PolicyVersion | None:
        """The newest version up to `number` that has figures."""
        for one in range(number, 0, -1):
            version = await self._journal.version(one)
            if version is not None and version.metrics and _made_by_a_step(version):
                return version
        return None

    async def close(self) -> None:
        """Finish the sink, if it is open."""
        if self._last is not None:
            self._last = None
            with contextlib.suppress(TimeoutError, JournalError):
                async with asyncio.timeout(CLOSING_SECONDS):
                    await asyncio.to_thread(self._sink.close)
                    await self._mark()


def _made_by_a_step(version: PolicyVersion) -> bool:
    return bool(version.method) and version.method != "resumed"
