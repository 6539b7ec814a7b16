"""The judge loop: every turn that waits in the journal gets a judgement, and becomes a sample or goes into
quarantine.

At most `judge_concurrency` turns are in memory; the rest of the backlog stays in the journal. A crash between a
judgement and its sample leaves the turn judged without a sample, so the sample is written first: judging again
replaces it. While nobody can be asked (`JudgeAway`) turns go on waiting, and the status says for whom.
"""

from __future__ import annotations

import asyncio
import logging
import time

from learner.judge import signals
from learner.judge.base import Judge
from learner.methods import method
from learner.progress import Progress
from shared.errors import JournalError, JudgeAway, OpenClawRLError
from shared.journal import AsyncJournal
from shared.records import Judgement, NextState, Outcome, Quarantine, Turn, now
from shared.settings import Settings

log = logging.getLogger(__name__)

POLL = 0.25
_PAUSE_AFTER_FAILURE = 2.0
_LEFT_OUT_SECONDS = 5.0
_LEFT_OUT_AT_ONCE = 32


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
        self._without_verdict: set[str] = set()
        self.judged = asyncio.Event()

    async def run(self) -> None:
        """Judge for ever: a slow turn holds up no other. Failures of the journal or of one turn are told and tried
        again.
        """
        working: dict[str, asyncio.Task[bool]] = {}
        looked = 0.0
        try:
            while True:
                try:
                    judged = await self._round(working)
                    if self._settings.at_least_one and time.monotonic() - looked > _LEFT_OUT_SECONDS:
                        await self.keep_one()
                        looked = time.monotonic()
                except (JournalError, JudgeAway) as error:
                    log.error("judge loop: %s", error)
                    self._progress.failed(error, "judging")
                    await asyncio.sleep(_PAUSE_AFTER_FAILURE)
                    continue
                if judged or not working:
                    self._progress.recovered("judging")
        finally:
            for task in working.values():
                task.cancel()
            await asyncio.gather(*working.values(), return_exceptions=True)

    async def once(self) -> int:
        """Judge the turns that wait, up to `judge_concurrency`, to the end; how many were judged. Raises `JudgeAway`
        if one of them cannot be judged now.
        """
        working: dict[str, asyncio.Task[bool]] = {}
        await self._begin(working)
        results = await asyncio.gather(*working.values(), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return sum(result is True for result in results)

    async def _round(self, working: dict[str, asyncio.Task[bool]]) -> int:
        """Begin what there is room for, and wait until one turn is done or it is time to look again; how many were
        judged. Raises what a turn met.
        """
        if len(working) < self._settings.judge_concurrency:
            await self._begin(working)
        if not working:
            await asyncio.sleep(POLL)
            return 0
        done, _ = await asyncio.wait(working.values(), timeout=POLL, return_when=asyncio.FIRST_COMPLETED)
        for turn_id in [turn_id for turn_id, task in working.items() if task in done]:
            del working[turn_id]
        for failure in [task.exception() for task in done]:
            if failure is not None:
                raise failure
        return sum(task.result() for task in done)

    async def _begin(self, working: dict[str, asyncio.Task[bool]]) -> None:
        """Start on the oldest turns that wait, until `judge_concurrency` are in work: the rest stays in the journal."""
        most = self._settings.judge_concurrency
        busy = self._in_flight | working.keys()
        waiting = await self._journal.unjudged(most + len(self._in_flight))
        turns = [turn for turn in waiting if turn.turn_id not in busy][: most - len(working)]
        if not turns:
            return
        live = await self._journal.live_version()
        for turn in turns:
            working[turn.turn_id] = asyncio.create_task(self._settle(turn, live.number if live else 0))

    async def keep_one(self) -> int:
        """For each ended episode whose judged turns were all left out by the judge: the last of them becomes a sample
        with reward 0 (`at_least_one`); how many did.

        The judgement that says so is what keeps it from happening twice; it is written after the sample. A session
        whose outcome is "no verdict" stays dropped.
        """
        kept = 0
        for last, *_ in await self._journal.left_out(_LEFT_OUT_AT_ONCE + len(self._without_verdict)):
            turn = None if last in self._in_flight | self._without_verdict else await self._journal.turn(last)
            if turn is None:
                continue
            outcome = await self._journal.outcome(turn.session_id)
            if outcome is not None and outcome.reward is None:
                self._without_verdict.add(last)
                continue
            live = await self._journal.live_version()
            await self._record(turn, signals.left_out(turn), live.number if live else 0)
            kept += 1
        return kept

    async def _settle(self, turn: Turn, live: int) -> bool:
        try:
            judgement = await self._judgement(turn)
            await self._record(turn, judgement, live)
        except JournalError:
            if await self._journal.turn(turn.turn_id) is None:  # forgotten meanwhile
                return False
            raise
        except JudgeAway:
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
        if outcome is not None and signals.outcome_counts(turn, outcome, next_state):
            return signals.with_feedback(await self._by_outcome(turn, outcome, next_state), explicit)
        if next_state is None:
            next_state = NextState(turn_id=turn.turn_id, role="user", text="", source="feedback")
        return signals.with_feedback(await self._judge.judge(turn, next_state), explicit)

    async def _by_outcome(self, turn: Turn, outcome: Outcome, next_state: NextState | None) -> Judgement:
        settings = self._settings
        later = await self._journal.later_main_turns(turn.turn_id) if settings.gamma else 0
        judged = signals.by_outcome(turn, outcome, gamma=settings.gamma, later=later)
        if not settings.step_rewards or judged.score is None or next_state is None:
            return judged
        step = await self._journal.judgement(turn.turn_id)  # what the judge said before the outcome came
        if step is None or step.signal != "judge" or step.score is None:
            step = await self._judge.judge(turn, next_state)
        return signals.with_step(judged, step, settings.step_rewards)

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
