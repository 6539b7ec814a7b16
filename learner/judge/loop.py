"""The judge loop: every turn that waits in the journal gets a judgement, and becomes a sample or goes into
quarantine.

At most `judge_concurrency` turns are in memory; the rest of the backlog stays in the journal. A crash between a
judgement and its sample leaves the turn judged without a sample, so the sample is written first: judging again
replaces it. While nobody can be asked (`JudgeAway`) turns go on waiting, and the status says for whom; what people said
outright and outcomes need nobody, and turns that have them are looked for among all that wait.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Set as AbstractSet

import msgspec

from openclaw_rl.learner.judge import signals
from openclaw_rl.learner.judge.protocol import Judge
from openclaw_rl.learner.methods import method
from openclaw_rl.learner.progress import Progress
from openclaw_rl.shared.backends import is_cloud
from openclaw_rl.shared.errors import JournalError, JudgeAway, OpenClawRLError
from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.messages.images import misplaced
from openclaw_rl.shared.records import Judgement, NextState, Outcome, Quarantine, Turn, now
from openclaw_rl.shared.settings.settings import Settings

log = logging.getLogger(__name__)

AFTER_LEARNING = "the outcome came after a version had learned from this turn, which is not learned from again"
CORRECTION = "a version had learned otherwise from this turn, which is learned from again as a correction"
CONFIRMED = "a version has learned the same from this turn before"
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
        self._cloud = is_cloud(settings)
        self._in_flight = in_flight if in_flight is not None else set()
        self._without_verdict: set[str] = set()
        self._away = 0  # turns that met nobody since somebody answered last
        self._past = 0  # turns at the head of the queue that met nobody, and are tried again after those behind them
        self._past_told = 0  # the same among turns that have feedback or an outcome
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
                if (judged and not self._away) or not working:
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
        told = await self._begin(working)
        results = await asyncio.gather(*working.values(), return_exceptions=True)
        self._met_nobody(sum(isinstance(result, JudgeAway) for result in results))
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return told + sum(result is True for result in results)

    async def _round(self, working: dict[str, asyncio.Task[bool]]) -> int:
        """Begin what there is room for, and wait until one turn is done or it is time to look again; how many were
        judged. Raises what a turn met.
        """
        told = 0
        if len(working) < self._settings.judge_concurrency:
            told = await self._begin(working)
        if not working:
            await asyncio.sleep(POLL)
            return told
        done, _ = await asyncio.wait(working.values(), timeout=POLL, return_when=asyncio.FIRST_COMPLETED)
        for turn_id in [turn_id for turn_id, task in working.items() if task in done]:
            del working[turn_id]
        failures = [failure for failure in (task.exception() for task in done) if failure is not None]
        self._met_nobody(sum(isinstance(failure, JudgeAway) for failure in failures))
        if failures:
            raise failures[0]
        return told + sum(task.result() for task in done)

    async def _begin(self, working: dict[str, asyncio.Task[bool]]) -> int:
        """Start on the oldest turns that wait, until `judge_concurrency` are in work: the rest stays in the journal.
        Those that met nobody are tried again when all behind them have been. While somebody is away the turns that need
        nobody are settled as well; how many were.
        """
        most = self._settings.judge_concurrency
        busy = self._in_flight | working.keys()
        window = most + len(self._in_flight)
        waiting = await self._journal.unjudged(window, offset=self._past)
        if self._past and len(waiting) < window:  # the end of the queue: from its head again
            self._past = 0
            waiting = waiting or await self._journal.unjudged(window)
        turns = [turn for turn in waiting if turn.turn_id not in busy][: most - len(working)]
        live = (await self._journal.live_version()) if turns or self._away else None
        number = live.number if live else 0
        for turn in turns:
            working[turn.turn_id] = asyncio.create_task(self._settle(turn, number, self._judge))
        return await self._settle_told(self._in_flight | working.keys(), number) if self._away else 0

    async def _settle_told(self, busy: AbstractSet[str], live: int) -> int:
        """Settle the next few turns that have feedback or an outcome, but for those that the judge must be asked about;
        how many were.
        """
        most = self._settings.judge_concurrency
        turns = await self._journal.unjudged(most, offset=self._past_told, explicit=True)
        settled = 0
        for turn in turns:
            try:
                if turn.turn_id not in busy and await self._settle(turn, live, _Nobody()):
                    settled += 1
                    continue
            except JudgeAway:
                pass
            self._past_told += 1
        if len(turns) < most:
            self._past_told = 0
        return settled

    def _met_nobody(self, turns: int) -> None:
        """So many turns found nobody to ask; they stay in the queue, and others come first."""
        self._away += turns
        self._past += turns

    def _answered(self) -> None:
        """Somebody answered. After an outage the oldest turns come first again."""
        if self._away >= self._settings.judge_concurrency:
            self._past = 0
        self._away = self._past_told = 0

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

    async def _settle(self, turn: Turn, live: int, judge: Judge) -> bool:
        try:
            judgement = await self._judgement(turn, judge)
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
                turn,
                Judgement(turn_id=turn.turn_id, score=None, judge=self._settings.judge.model, reason=str(error)),
                live,
            )
        return True

    async def _judgement(self, turn: Turn, judge: Judge) -> Judgement:
        feedback = await self._journal.feedback_for(turn.turn_id)
        explicit = signals.by_feedback(turn, feedback)
        next_state = await self._journal.next_state(turn.turn_id)
        outcome = await self._journal.outcome(turn.session_id)
        if explicit is not None:
            if explicit.hint or (explicit.score or 0) > 0 or next_state is None:
                return explicit
            if explicit.reason != signals.COMMENT and next_state.role != "user":  # a tool's result gives no hint
                return explicit
        if outcome is not None and signals.outcome_counts(turn, outcome, next_state):
            return signals.with_feedback(await self._by_outcome(turn, outcome, next_state, judge), explicit)
        if next_state is None:
            next_state = NextState(turn_id=turn.turn_id, role="user", text="", source="feedback")
        return signals.with_feedback(await self._asked(judge, turn, next_state), explicit)

    async def _asked(self, judge: Judge, turn: Turn, next_state: NextState) -> Judgement:
        judged = await judge.judge(turn, next_state)
        self._answered()
        return judged

    async def _by_outcome(self, turn: Turn, outcome: Outcome, next_state: NextState | None, judge: Judge) -> Judgement:
        settings = self._settings
        later = await self._journal.later_main_turns(turn.turn_id, outcome.time) if settings.gamma else 0
        judged = signals.by_outcome(turn, outcome, gamma=settings.gamma, later=later)
        if not settings.step_rewards or judged.score is None or next_state is None:
            return judged
        step = await self._journal.judgement(turn.turn_id)  # what the judge said before the outcome came
        if step is None or step.signal != "judge" or step.score is None:
            step = await self._asked(judge, turn, next_state)
        return signals.with_step(judged, step, settings.step_rewards)

    async def _record(self, turn: Turn, judgement: Judgement, live: int) -> None:
        settings = self._settings
        reason = signals.defect(
            turn,
            judgement,
            max_tokens=settings.max_sample_tokens,
            max_lag=settings.max_version_lag,
            live=live,
            cloud=self._cloud,
        )
        sample = None if reason else signals.sample_of(turn, judgement)
        reason = reason if sample is None else self._method.cannot_use(sample)
        known = judgement.signal != "judge" and not misplaced(turn)
        lesson = await self._journal.last_lesson(turn.turn_id) if known else None
        correction = lesson is not None and judgement.signal == "feedback" and signals.corrects(judgement, lesson)
        if lesson is not None:
            told = AFTER_LEARNING if judgement.signal == "outcome" else CORRECTION if correction else CONFIRMED
            judgement = msgspec.structs.replace(judgement, reason=f"{judgement.reason}; {told}")
        if sample is None or reason:
            await self._journal.add_quarantine(Quarantine(turn_id=turn.turn_id, reason=reason, time=now()))
        else:
            await self._journal.add_sample(sample, correction=correction)
        await self._journal.add_judgement(judgement)
        if not reason:
            self.judged.set()


class _Nobody:
    """The judge of turns that are settled while the real one is away."""

    async def judge(self, turn: Turn, next_state: NextState) -> Judgement:
        raise JudgeAway(f"turn {turn.turn_id} waits for the judge")

    async def close(self) -> None:
        return
