"""The judge loop: every waiting turn gets a judgement, and becomes a sample or goes into quarantine.

At most `judge_concurrency` turns are in memory; the backlog stays in the journal. The sample is written before the
judgement, so that a crash between them only means judging again, which replaces the sample. While the judge is away
(`JudgeAway`) turns wait; those with explicit feedback or an outcome need no judge and are found among all that wait.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

import msgspec

from openclaw_rl.learner.judge import signals
from openclaw_rl.learner.judge.llm import WithHints
from openclaw_rl.learner.judge.protocol import Judge
from openclaw_rl.learner.methods import method
from openclaw_rl.learner.progress import Progress
from openclaw_rl.shared.errors import JournalError, JudgeAway, OpenClawRLError
from openclaw_rl.shared.journal import AsyncJournal, Attempted, Lineage
from openclaw_rl.shared.journal.deaths import MOST_DEATHS
from openclaw_rl.shared.messages.images import misplaced
from openclaw_rl.shared.records import Judgement, NextState, Outcome, Quarantine, Turn, now
from openclaw_rl.shared.settings.judge_spec import choose_judge
from openclaw_rl.shared.settings.settings import Settings

log = logging.getLogger(__name__)

AFTER_LEARNING = "the outcome came after a version had learned from this turn, which is not learned from again"
REPLACED = "it replaces what came first, from a request with another system text and other tools"
AFTER_WEAK = "a version had learned from this turn by what came first, which stays; it is not learned from again"
CORRECTION = "a version had learned otherwise from this turn, which is learned from again as a correction"
CONFIRMED = "a version has learned the same from this turn before"
POLL = 0.25
_PAUSE_AFTER_FAILURE = 2.0
_LEFT_OUT_SECONDS = 5.0
_LEFT_OUT_AT_ONCE = 32


class JudgeLoop:
    """Judges waiting turns. `judged` is set when there is a new sample; turns in `in_flight` are being learned from and
    wait.
    """

    def __init__(
        self,
        journal: AsyncJournal,
        judge: Judge,
        settings: Settings,
        progress: Progress,
        in_flight: set[str],
    ) -> None:
        self._journal = journal
        self._judge = judge
        self._settings = settings
        self._progress = progress
        self._method = method(settings.learning.method, settings)
        takes_hints = settings.judge.environment_hints and self._method.hints in ("own", "remembered")
        self._attempt_judge = None if takes_hints else judge.scorer if isinstance(judge, WithHints) else judge
        """The judge of steps of attempts where none of its hints is taken."""
        self._in_flight = in_flight
        self._without_verdict: set[str] = set()
        self._postponed = 0  # turns that found the judge away since it last answered
        self._offset = 0  # postponed turns at the head of the queue; tried again after all others
        self._explicit_offset = 0  # the same in the queue of turns with feedback or an outcome
        self.judged = asyncio.Event()

    async def run(self) -> None:
        """Judge until cancelled; a slow turn does not block others. Failures are reported and tried again."""
        working: dict[str, asyncio.Task[bool]] = {}
        looked = 0.0
        try:
            while True:
                try:
                    judged = await self._round(working)
                    if self._settings.learning.at_least_one and time.monotonic() - looked > _LEFT_OUT_SECONDS:
                        await self.keep_one()
                        looked = time.monotonic()
                except (JournalError, JudgeAway) as error:
                    log.error("judge loop: %s", error)
                    self._progress.failed(error, "judging")
                    await asyncio.sleep(_PAUSE_AFTER_FAILURE)
                    continue
                if (judged and not self._postponed) or not working:
                    self._progress.recovered("judging")
        finally:
            for task in working.values():
                task.cancel()
            await asyncio.gather(*working.values(), return_exceptions=True)

    async def _round(self, working: dict[str, asyncio.Task[bool]]) -> int:
        """Begin as many turns as there is room for, and wait until one is done or `POLL` is over; returns how many were
        judged. Raises a turn's error.
        """
        settled = 0
        if len(working) < self._settings.judge.concurrency:
            settled = await self._begin(working)
        if not working:
            await asyncio.sleep(POLL)
            return settled
        done, _ = await asyncio.wait(working.values(), timeout=POLL, return_when=asyncio.FIRST_COMPLETED)
        for turn_id in [turn_id for turn_id, task in working.items() if task in done]:
            del working[turn_id]
        failures = [failure for failure in (task.exception() for task in done) if failure is not None]
        self._postpone(failures)
        if failures:
            raise failures[0]
        return settled + sum(task.result() for task in done)

    async def _begin(self, working: dict[str, asyncio.Task[bool]]) -> int:
        """Start on the oldest waiting turns, until `judge_concurrency` are in work; postponed turns come after all
        others. While the judge is away, also settle turns that need none; returns how many of those were settled.
        """
        most = self._settings.judge.concurrency
        busy = self._in_flight | working.keys()
        window = most + len(self._in_flight)
        waiting = await self._journal.unjudged(window, offset=self._offset)
        if self._offset and len(waiting) < window:  # the end of the queue: continue at its head
            self._offset = 0
            waiting = waiting or await self._journal.unjudged(window)
        turns = [turn for turn in waiting if turn.turn_id not in busy][: most - len(working)]
        turns = await self._without_deadly(turns, alone=not working)
        if not turns and not self._postponed:
            return 0
        lineage = await self._journal.lineage()
        if turns:
            await self._journal.begin_work("judge", [turn.turn_id for turn in turns])
        for turn in turns:
            working[turn.turn_id] = asyncio.create_task(self._settle(turn, lineage, self._judge))
        return await self._settle_explicit(self._in_flight | working.keys(), lineage) if self._postponed else 0

    async def _without_deadly(self, turns: list[Turn], *, alone: bool) -> list[Turn]:
        """The turns to begin. One that may have ended an earlier process is judged alone, so that it is known if it
        does so again; then it is set aside.
        """
        deaths = await self._journal.deaths("judge") if turns else {}
        for turn in turns:
            if turn.turn_id not in deaths:
                continue
            if deaths[turn.turn_id] < MOST_DEATHS:
                return [turn] if alone else []
            reason = f"judging it ended the learner {deaths[turn.turn_id]} times"
            log.error("turn %s is set aside: %s", turn.turn_id, reason)
            await self._journal.add_quarantine(Quarantine(turn_id=turn.turn_id, reason=reason))
        return [turn for turn in turns if turn.turn_id not in deaths]

    async def _settle_explicit(self, busy: AbstractSet[str], lineage: Lineage) -> int:
        """Settle the next few turns with feedback or an outcome that need no judge; returns how many."""
        most = self._settings.judge.concurrency
        turns = await self._journal.unjudged(most, offset=self._explicit_offset, explicit=True)
        settled = 0
        for turn in turns:
            try:
                if turn.turn_id not in busy and await self._settle(turn, lineage, None):
                    settled += 1
                    continue
            except JudgeAway:
                pass
            self._explicit_offset += 1
        if len(turns) < most:
            self._explicit_offset = 0
        return settled

    def _postpone(self, results: Sequence[object]) -> None:
        """Put the turns that found the judge away after the others."""
        turns = sum(isinstance(result, JudgeAway) for result in results)
        self._postponed += turns
        self._offset += turns

    def _judge_answered(self) -> None:
        """After an outage the oldest turns come first again."""
        if self._postponed >= self._settings.judge.concurrency:
            self._offset = 0
        self._postponed = self._explicit_offset = 0

    async def keep_one(self) -> int:
        """For each ended episode whose judged turns were all left out by the judge, make a sample with reward 0 of the
        last one (`at_least_one`); returns how many.

        The judgement, written after the sample, keeps it from happening twice. A session with the outcome "no verdict"
        stays dropped, and so does an attempt in a group: a reward that no one gave would be compared with the others.
        """
        kept = 0
        for last, *_ in await self._journal.left_out(_LEFT_OUT_AT_ONCE + len(self._without_verdict)):
            turn = None if last in self._in_flight | self._without_verdict else await self._journal.turn(last)
            if turn is None:
                continue
            outcome = await self._journal.outcome(turn.session_id, turn.episode)
            attempt = await self._journal.attempt_of(last)
            if (outcome is not None and outcome.reward is None) or (attempt is not None and attempt.group):
                self._without_verdict.add(last)
                continue
            await self._record(turn, signals.left_out(turn), await self._journal.lineage())
            kept += 1
        return kept

    async def _settle(self, turn: Turn, lineage: Lineage, judge: Judge | None) -> bool:
        """Judge a turn; without a judge only by what needs none. Returns whether it was there. Raises `JudgeAway`."""
        try:
            attempt = await self._journal.attempt_of(turn.turn_id)
            judgement = await self._judgement(turn, judge, attempt)
            await self._record(turn, judgement, lineage, attempt)
        except JournalError:
            if await self._journal.turn(turn.turn_id) is None:  # forgotten meanwhile
                return False
            raise
        except JudgeAway:
            await self._journal.end_work("judge", [turn.turn_id])
            raise
        except OpenClawRLError as error:
            log.error("judging turn %s failed: %s", turn.turn_id, error)
            self._progress.failed(error, f"judging turn {turn.turn_id}")
            name = choose_judge(self._settings)[0].title
            failed = Judgement(turn_id=turn.turn_id, score=None, judge=name, reason=str(error))
            await self._record(turn, failed, lineage)
        except Exception as error:  # one turn must not end the learner: it would end it again after each restart
            log.exception("judging turn %s failed", turn.turn_id)
            self._progress.failed(error, f"judging turn {turn.turn_id}")
            reason = f"judging it failed ({type(error).__name__}: {error})"
            await self._journal.add_quarantine(Quarantine(turn_id=turn.turn_id, reason=reason))
        return True

    async def _judgement(self, turn: Turn, judge: Judge | None, attempt: Attempted | None) -> Judgement:
        feedback = await self._journal.feedback_for(turn.turn_id)
        explicit = signals.by_feedback(turn, feedback)
        next_state = await self._journal.next_state(turn.turn_id)
        judgement = await self._weigh(turn, explicit, next_state, judge, attempt)
        if next_state is None:
            return judgement
        reason = judgement.reason
        if next_state.instead_of is not None:
            reason = f"{reason}; {REPLACED}" if reason else REPLACED
        return msgspec.structs.replace(
            judgement, reason=reason, next_turn_id=next_state.next_turn_id, instead_of=next_state.instead_of
        )

    async def _weigh(
        self,
        turn: Turn,
        explicit: Judgement | None,
        next_state: NextState | None,
        judge: Judge | None,
        attempt: Attempted | None,
    ) -> Judgement:
        """The judgement of the signals that there are."""
        outcome = await self._journal.outcome(turn.session_id, turn.episode)
        if explicit is not None and (explicit.hint or (explicit.score or 0) > 0 or next_state is None):
            return explicit
        if outcome is not None and signals.outcome_counts(turn, outcome, next_state):
            judged = await self._by_outcome(turn, outcome, next_state, judge, attempt)
            return signals.with_feedback(judged, explicit)
        if attempt is not None and attempt.group and outcome is None:
            return signals.with_feedback(signals.without_outcome(turn), explicit)
        if next_state is None:
            next_state = NextState(turn_id=turn.turn_id, role="user", text="", source="feedback")
        return signals.with_feedback(await self._asked(judge, turn, next_state, attempt), explicit)

    async def _asked(
        self, judge: Judge | None, turn: Turn, next_state: NextState, attempt: Attempted | None
    ) -> Judgement:
        if judge is None:
            raise JudgeAway(f"turn {turn.turn_id} waits for the judge")
        scorer = None if attempt is None else self._attempt_judge
        judged = await (scorer or judge).judge(turn, next_state)
        self._judge_answered()
        judged = msgspec.structs.replace(judged, hint_role=next_state.role)
        return judged if scorer is None else signals.without_hint(judged)

    async def _by_outcome(
        self,
        turn: Turn,
        outcome: Outcome,
        next_state: NextState | None,
        judge: Judge | None,
        attempt: Attempted | None,
    ) -> Judgement:
        settings, grouped = self._settings, attempt is not None and bool(attempt.group)
        later = await self._journal.later_main_turns(turn.turn_id, outcome.time) if settings.learning.gamma else 0
        judged = signals.by_outcome(turn, outcome, gamma=settings.learning.gamma, later=later, grouped=grouped)
        if judged.score is None or next_state is None:
            return judged
        step = await self._journal.judgement(turn.turn_id)  # from before the outcome came
        if step is not None and (step.signal != "judge" or step.score is None):
            step = None
        weight = settings.judge.step_rewards
        if step is None and (weight or (attempt is not None and self._attempt_judge is None)):
            step = await self._asked(judge, turn, next_state, attempt)
        if not weight:
            return judged if step is None else signals.with_hint_of(judged, step)
        assert step is not None, "with a weight the step is scored"
        return signals.with_step(judged, step, weight, grouped=grouped)

    async def _record(
        self, turn: Turn, judgement: Judgement, lineage: Lineage, attempt: Attempted | None = None
    ) -> None:
        lag = signals.version_lag(turn, lineage)
        reason = signals.defect(turn, judgement, self._settings, needs_verdict=self._method.needs_verdict)
        sample = None if reason else signals.sample_of(turn, judgement, attempt)
        if sample is not None and self._method.hints == "follow-up":
            said = await self._journal.next_state(turn.turn_id), await self._journal.feedback_for(turn.turn_id)
            sample = msgspec.structs.replace(sample, hint=signals.follow_up(*said))
        if sample is not None:
            spoken = judgement.signal == "feedback"
            most = self._settings.learning.max_version_lag
            reason = self._method.cannot_use(sample) or signals.aged(sample, lag, most, self._method, spoken=spoken)[1]
        again = judgement.signal != "judge" or judgement.instead_of is not None
        known = again and not misplaced(turn)
        lesson = await self._journal.last_lesson(turn.turn_id) if known else None
        correction = False
        if lesson is not None and sample is not None and judgement.signal == "feedback":
            correction = self._method.corrects(sample, lesson)
        if lesson is not None:
            effect = AFTER_LEARNING if judgement.signal == "outcome" else CORRECTION if correction else CONFIRMED
            if judgement.signal == "judge":
                effect = AFTER_WEAK
            judgement = msgspec.structs.replace(judgement, reason=f"{judgement.reason}; {effect}")
        if sample is None or reason:
            await self._journal.add_quarantine(Quarantine(turn_id=turn.turn_id, reason=reason, time=now()))
        else:
            await self._journal.add_sample(sample, correction=correction)
        await self._journal.add_judgement(judgement)
        if not reason:
            self.judged.set()
