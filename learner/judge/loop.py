"""The judge loop: every turn that waits in the journal gets a judgement, and becomes a sample or goes into
quarantine.

At most `judge_concurrency` turns are in memory; the rest of the backlog stays in the journal. A crash between a
judgement and its sample leaves the turn judged without a sample, so the sample is written first: judging again
replaces it.
"""

from __future__ import annotations

import asyncio
import logging

from learner.judge import signals
from learner.judge.base import Judge
from learner.methods import method
from learner.progress import Progress
from shared.errors import JournalError, OpenClawRLError
from shared.journal import AsyncJournal
from shared.records import Judgement, NextState, Quarantine, Turn, now
from shared.settings import Settings

log = logging.getLogger(__name__)

POLL = 0.25
_PAUSE_AFTER_FAILURE = 2.0


class JudgeLoop:
    """Judges what waits. `judged` is set when there is a new sample; turns in `in_flight` are being learned from and
    wait.
    """

    def __init__(
        self,
        journal: AsyncJournal,
        judge: Judge,
        settings: Settings,
        progress: Progress,
        in_flight: set[str] | None = None,
    ) -> None:
        self._journal = journal
        self._judge = judge
        self._settings = settings
        self._progress = progress
        self._method = method(settings.method, settings)
        self._in_flight = in_flight if in_flight is not None else set()
        self.judged = asyncio.Event()

    async def run(self) -> None:
        """Judge for ever. Failures of the journal or of one turn are told and tried again."""
        while True:
            try:
                worked = await self.once()
                self._progress.recovered("judging")
            except JournalError as error:
                log.error("judge loop: %s", error)
                self._progress.failed(error, "judging")
                await asyncio.sleep(_PAUSE_AFTER_FAILURE)
                continue
            if not worked:
                await asyncio.sleep(POLL)

    async def once(self) -> int:
        """Judge the turns that wait, up to `judge_concurrency`; how many were judged."""
        waiting = await self._journal.unjudged(self._settings.judge_concurrency + len(self._in_flight))
        turns = [turn for turn in waiting if turn.turn_id not in self._in_flight]
        if not turns:
            return 0
        live = await self._journal.live_version()
        number = live.number if live else 0
        done = await asyncio.gather(*(self._settle(turn, number) for turn in turns))
        return sum(done)

    async def _settle(self, turn: Turn, live: int) -> bool:
        try:
            judgement = await self._judgement(turn)
            await self._record(turn, judgement, live)
        except JournalError:
            if await self._journal.turn(turn.turn_id) is None:  # forgotten meanwhile
                return False
            raise
        except OpenClawRLError as error:
            log.error("judging turn %s failed: %s", turn.turn_id, error)
            self._progress.failed(error, f"judging turn {turn.turn_id}")
            await self._record(
                turn, Judgement(turn_id=turn.turn_id, score=None, judge=self._settings.judge, reason=str(error)), live
            )
        return True

    async def _judgement(self, turn: Turn) -> Judgement:
        feedback = await self._journal.feedback_for(turn.turn_id)
        explicit = signals.by_feedback(turn, feedback)
        next_state = await self._journal.next_state(turn.turn_id)
        outcome = await self._journal.outcome(turn.session_id)
        if explicit is not None and (explicit.hint or (explicit.score or 0) > 0 or next_state is None):
            return explicit
        if signals.outcome_counts(outcome, next_state) and outcome is not None:
            return signals.with_feedback(signals.by_outcome(turn, outcome), explicit)
        if next_state is None:
            next_state = NextState(turn_id=turn.turn_id, role="user", text="", source="feedback")
        return signals.with_feedback(await self._judge.judge(turn, next_state), explicit)

    async def _record(self, turn: Turn, judgement: Judgement, live: int) -> None:
        settings = self._settings
        reason = signals.defect(
            turn, judgement, max_tokens=settings.max_sample_tokens, max_lag=settings.max_version_lag, live=live
        )
        sample = signals.sample_of(turn, judgement)
        reason = reason or self._method.cannot_use(sample)
        if reason:
            await self._journal.add_quarantine(Quarantine(turn_id=turn.turn_id, reason=reason, time=now()))
        elif not await self._learned(turn.turn_id):
            await self._journal.add_sample(sample)
        await self._journal.add_judgement(judgement)
        if not reason:
            self.judged.set()

    async def _learned(self, turn_id: str) -> bool:
        """Whether a version already holds this turn; it must not count twice, whatever is said about it later."""
        told = await self._journal.explain(turn_id)
        return told is not None and any(sample["state"] == "consumed" for sample in told["samples"])
