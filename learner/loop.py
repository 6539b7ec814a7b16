"""The learner loop: ready samples become a step (`learner.batch`), a step becomes a version (`learner.versions`)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence

import msgspec

from openclaw_rl.learner.batch import Batch, Batches
from openclaw_rl.learner.fitting import LENGTH, MEMORY, fitting_step, within_limit
from openclaw_rl.learner.guard.guard import Guard, GuardVerdict, examine
from openclaw_rl.learner.guard.held_out import set_aside
from openclaw_rl.learner.hints import HintMemory, with_own
from openclaw_rl.learner.judge.selection import MOST_CANDIDATES, candidates_of
from openclaw_rl.learner.methods import Method, lessons_of, method, running_mean, subtract_baseline
from openclaw_rl.learner.progress import Progress
from openclaw_rl.learner.reporting.report import step_figures
from openclaw_rl.learner.revisions import accepted_revisions
from openclaw_rl.learner.rollouts.hooks import GENERATE, ROLLOUT, load
from openclaw_rl.learner.rollouts.rehearsal import Rollouts, hinted_prompts
from openclaw_rl.learner.rollouts.relevance import relevant
from openclaw_rl.learner.rollouts.rollouts import RolloutContext, make_rollouts
from openclaw_rl.learner.teacher import OtherTeacher
from openclaw_rl.learner.versions import Candidate, Versions
from openclaw_rl.shared.engine.protocol import Engine
from openclaw_rl.shared.errors import (
    EngineError,
    JournalError,
    OpenClawRLError,
    TrainerAway,
    TrainerError,
    TrainerOutOfMemory,
)
from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.journal.deaths import MOST_DEATHS
from openclaw_rl.shared.journal.status import PAUSE_REASON
from openclaw_rl.shared.records import Judgement, PolicyVersion, Quarantine, Sample
from openclaw_rl.shared.rendering.prompter import Prompter
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.shared.trainer import Recipe, StepReport, Trainer

log = logging.getLogger(__name__)

POLL = 0.5
OBSTRUCTED = "waiting for what trains"
"""The state while the trainer cannot make a step; the detail has the reason."""
_RETRY = 1.0
_LONGEST_RETRY = 30.0
_TRIES = 2

_DEADLY = "batches that ended the learner"
"""The control that counts those set aside since the last step that was made."""

_DEADLY_IN_A_ROW = 2
"""After so many the fault is in none of them: learning pauses."""


class Learner:
    """Turns ready samples into versions. `in_flight` are the turns of the running step; `wake` is set when there may
    be work.
    """

    def __init__(
        self,
        journal: AsyncJournal,
        engine: Engine,
        trainer: Trainer,
        versions: Versions,
        prompter: Prompter,
        settings: Settings,
        progress: Progress,
        *,
        wake: asyncio.Event,
        in_flight: set[str],
        teacher: OtherTeacher | None = None,
    ) -> None:
        """Raises `ConfigError` for a method, a hook, probes or anchor prompts that cannot be used."""
        self._journal = journal
        self._trainer = trainer
        self._versions = versions
        self._prompter = prompter
        self._settings = settings
        self._progress = progress
        self._wake = wake
        self._in_flight = in_flight
        self._teacher = teacher
        self._method: Method = method(settings.learning.method, settings)
        self._rollouts = Rollouts(engine, prompter, settings, progress)
        self._guard = Guard(journal, engine, prompter, settings, self._method.trains_reward)
        self._rollout_hook = load(settings, ROLLOUT)
        self._batches = Batches(journal, settings, self._method, HintMemory(journal, engine, prompter, settings))
        # Verdict and rollouts of a batch whose step did not happen, by live version and samples: they may cost money.
        self._prepared: tuple[tuple[int | str, ...], GuardVerdict, list[Sample]] | None = None
        self._failures: dict[str, int] = {}  # steps that failed, by the oldest sample of their batch

    async def run(self) -> None:
        """Learn until cancelled. Failures are reported and tried again after a growing pause; nothing is lost."""
        pause = _RETRY
        while True:
            try:
                worked = await self.once()
                pause = _RETRY
            except Exception as error:
                doing = self._progress.state
                self._progress.failed(error, doing)
                log.error("learner, while %s: %s", doing, error, exc_info=not isinstance(error, OpenClawRLError))
                self._progress.now("waiting to try again", f"after an error while {doing}")
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_RETRY)
                continue
            if not worked:
                await self._idle()

    async def _idle(self) -> None:
        """Wait until there may be work. While paused or obstructed, `wake` stays set for the first look afterwards, so
        it must not wake this.
        """
        if self._progress.state in ("paused", OBSTRUCTED):
            await asyncio.sleep(POLL)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(POLL):
                await self._wake.wait()

    async def once(self) -> bool:
        """Make one update, if there is enough to learn from; returns whether there was."""
        if await self._journal.get_control("train", "running") == "paused":
            self._progress.now("paused", await self._journal.get_control(PAUSE_REASON))
            return False
        # Another version may have been made live because this one's state is the obstacle.
        live = await self._versions.follow()
        obstacle = await self._trainer.obstacle() or await self._versions.lack_of_space(live)
        if obstacle:
            self._progress.now(OBSTRUCTED, obstacle)
            return False
        news = self._wake.is_set()
        self._wake.clear()
        batch = await self._batches.next(news=news)
        if batch is None:
            return False
        if batch.waiting:
            self._progress.now(batch.waiting, batch.detail)
            return False
        self._in_flight.update(sample.turn_id for sample in batch.samples if sample.turn_id)
        try:
            await self._learn(batch, live)
        finally:
            self._in_flight.clear()
        self._progress.succeeded()
        return True

    async def _learn(self, batch: Batch, live: PolicyVersion) -> None:
        if await self._is_deadly(batch, live):
            return
        sample_ids = [sample.sample_id for sample in batch.samples]
        turns = [*(sample.turn_id for sample in batch.samples if sample.turn_id), *batch.held_back]
        baseline = self._settings.learning.baseline
        usual = running_mean(await self._journal.mean_rewards()) if baseline == "running" else None
        judged = subtract_baseline(batch.samples, baseline, usual, self._method.trains_reward)
        samples = [await self._hinted(one, batch.hints) for one in judged if self._method.informative(one)]
        prepared: tuple[int | str, ...] = (live.number, *sample_ids)
        found = self._prepared
        if found is None or found[0] != prepared:
            self._progress.now("probing", "the batch")
            verdict = await self._guard.rewards(batch.samples, turns, live.number)
            if not verdict.passed:
                await self._reject(batch, None, verdict, live)
                return
            found = (prepared, verdict, await self._rollouts_for(batch, samples, live))
            self._prepared = found
        _, verdict, rollouts = found
        if not samples and all(rollout.origin == "anchor" for rollout in rollouts):
            await self._known(batch, sample_ids)
            return
        longest = self._settings.learning.max_sample_tokens
        (samples, note), (rollouts, other) = (within_limit(made, longest) for made in (samples, rollouts))
        self._progress.note(LENGTH, "; ".join(filter(None, [note, other])))
        if self._teacher is not None:
            self._progress.now("asking the teacher", self._teacher.title)
            samples, rollouts = await self._teacher.teach(samples), await self._teacher.teach(rollouts)
        figures = await step_figures(self._journal, batch.samples, samples, rollouts)
        figures |= self._batches.group_figures()
        self._progress.now(
            "training", f"{len(sample_ids)} turns, {len(rollouts)} rollouts, {len(batch.hints)} remembered hints"
        )
        try:
            samples = [*self._advantages(samples), *rollouts]
            recipe = self._method.recipe(self._settings.learning)
            report, note = await self._step(batch, samples, recipe)
            lessons = lessons_of(samples, recipe)
            report = msgspec.structs.replace(report, metrics={**report.metrics, **figures})
            self._progress.note(MEMORY, note)
        except TrainerAway:
            raise
        except TrainerOutOfMemory as error:
            self._prepared = None
            await self._out_of_memory([*batch.samples, *samples], error)
            return
        except TrainerError as error:
            self._prepared = None
            await self._failed(batch, error, live)
            return
        candidate: Candidate | None = None
        if not report.updates:
            self._versions.current = live.number
            await self._known(batch, sample_ids)
            return
        try:
            verdict = verdict.and_then(examine(report, max_kl=self._settings.guard.max_kl))
            if verdict.passed:
                candidate = await self._versions.save(live, sample_ids)
                self._guard.forget(candidate.number)
                verdict = verdict.and_then(await self._probed(candidate, live, turns))
            if await self._versions.chosen_another(live):
                log.warning("a step from version %d is dropped: another version was made live meanwhile", live.number)
                await self._versions.undo(candidate)
            elif candidate is not None and verdict.passed:
                version = await self._versions.accept(sample_ids, report, verdict, live, candidate, lessons)
                self._prepared = None
                self._batches.forget_group_figures()
                await set_aside(self._journal, batch.held_back)
                self._show(version, report)
            else:
                await self._reject(batch, report, verdict, live, candidate)
        except (JournalError, TrainerError, EngineError) as error:
            # Not committed: the step did not happen, and its samples are ready again.
            await self._versions.undo(candidate)
            if isinstance(error, TrainerOutOfMemory):
                self._progress.note(MEMORY, str(error))
            raise

    async def _step(self, batch: Batch, samples: Sequence[Sample], recipe: Recipe) -> tuple[StepReport, str]:
        """The trainer's step, written down before it begins: it may end this process. Raises `TrainerError`, for any
        error that is not ours too.
        """
        work = [_oldest(batch)]
        await self._journal.begin_work("step", work)
        # Whatever fails between here and the commit, the next look restores the live version.
        self._versions.current = None
        try:
            found = await fitting_step(self._trainer, samples, recipe)
        except Exception as error:
            await self._journal.end_work("step", work)
            if isinstance(error, OpenClawRLError):
                raise
            raise TrainerError(f"the step raised {type(error).__name__}: {error}") from error
        await self._journal.end_work("step", work)
        if await self._journal.get_control(_DEADLY, "0") != "0":
            await self._journal.set_control(_DEADLY, "0")
        return found

    async def _is_deadly(self, batch: Batch, live: PolicyVersion) -> bool:
        """Set a batch aside whose step has ended the learner's process too often. Where that happens to batch after
        batch, pause.
        """
        deaths = (await self._journal.deaths("step")).get(_oldest(batch), 0)
        if deaths < MOST_DEATHS:
            return False
        reason = f"its step ended the learner {deaths} times (out of memory, or a fault in native code)"
        await self._reject(batch, None, GuardVerdict(False, reason), live)
        await self._journal.end_work("step", [_oldest(batch)])
        in_a_row = int(await self._journal.get_control(_DEADLY, "0")) + 1
        await self._journal.set_control(_DEADLY, str(in_a_row))
        if in_a_row >= _DEADLY_IN_A_ROW:
            text = f"{in_a_row} batches in a row ended the learner; see its log, then: openclaw-rl resume"
            log.error("learning pauses: %s", text)
            await self._journal.set_control(PAUSE_REASON, text)
            await self._journal.set_control("train", "paused")
            await self._journal.set_control(_DEADLY, "0")
        return True

    def _advantages(self, samples: Sequence[Sample]) -> Sequence[Sample]:
        """The samples with the method's advantages. Raises `TrainerError` if a custom method fails."""
        try:
            found = list(self._method.advantages(samples))
        except Exception as error:  # user code: give up its batch, not the learner
            raise TrainerError(f"method {self._method.name} raised {type(error).__name__}: {error}") from error
        if not all(isinstance(sample, Sample) for sample in found):
            raise TrainerError(f"method {self._method.name} gave something that is no shared.records.Sample")
        return found

    async def _probed(self, candidate: Candidate, live: PolicyVersion, turns: Sequence[str]) -> GuardVerdict:
        """The guard's verdict on a candidate, after loading it into the engine. Waits while the engine is away, unless
        another version is made live: the step is saved, and may have cost money.
        """
        pause = _RETRY
        doing = f"probing version {candidate.number}"
        while True:
            self._progress.now("probing", f"version {candidate.number}")
            try:
                if self._settings.guard.enabled:
                    await self._versions.show(candidate)
                verdict = await self._guard.probe(candidate.number, live.number, turns)
                self._progress.recovered(doing)
                return verdict
            except EngineError as error:
                if error.status == 400:
                    return GuardVerdict(False, f"the engine cannot load it: {error}")
                if await self._versions.chosen_another(live):
                    return GuardVerdict(True, "", {"not_probed": "another version was made live meanwhile"})
                self._progress.failed(error, doing)
                log.warning("%s: %s; trying again in %.0f s", doing, error, pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_RETRY)

    async def _reject(
        self,
        batch: Batch,
        report: StepReport | None,
        verdict: GuardVerdict,
        live: PolicyVersion,
        candidate: Candidate | None = None,
    ) -> None:
        """Reject the result of a batch; its held-out answers prove nothing either."""
        sample_ids = [sample.sample_id for sample in batch.samples]
        await self._versions.reject(sample_ids, report, verdict, live, candidate)
        if report is not None:
            self._batches.forget_group_figures()
        await set_aside(self._journal, batch.held_back, f"its batch was rejected: {verdict.reason}")

    async def _known(self, batch: Batch, sample_ids: Sequence[str]) -> None:
        """End a batch that has nothing left to teach; there is no version of it."""
        self._prepared = None
        await self._journal.mark_known(sample_ids)
        await set_aside(self._journal, batch.held_back)
        log.info("%d turns taught nothing that the policy does not do already", len(sample_ids))

    async def _rollouts_for(self, batch: Batch, samples: Sequence[Sample], live: PolicyVersion) -> list[Sample]:
        # The second try of a batch goes without custom rollouts: they may have made the step fail.
        hook = None if _oldest(batch) in self._failures else self._rollout_hook
        if hook is None and not self._method.rollouts:
            return []
        self._progress.note(GENERATE, "")
        turns = [sample.turn_id for sample in batch.samples if sample.turn_id]
        context = RolloutContext(
            self._journal, self._rollouts, batch=samples, hints=batch.hints, live=live.number, turns=turns
        )
        made = await make_rollouts(context, hook)
        if hook:
            return made
        revisions = await accepted_revisions(self._journal, self._settings)
        return [*made, *await relevant(self._rollouts.engine, self._prompter, revisions)]

    async def _hinted(self, sample: Sample, remembered: Sequence[str]) -> Sample:
        """A sample with a hint gets the prompts of its teacher: its own hint and the newest remembered ones, at most
        `max_hints` together; its own alone if the method takes no others or no person gave it.
        """
        if not (sample.hint and sample.turn_id) or self._method.hints == "none":
            return sample
        judgement = await self._journal.judgement(sample.turn_id)
        if self._method.hints == "follow-up":
            remembered = [sample.hint]
        elif self._method.hints == "own":
            remembered = self._proposed(sample, judgement)
        elif judgement is not None and judgement.hint_role != "user":
            remembered = [sample.hint]
        else:
            remembered = with_own(sample.hint, remembered, self._settings.learning.max_hints)
        turn = await self._journal.turn(sample.turn_id)
        if turn is None:
            raise JournalError(f"turn {sample.turn_id} is gone: its session was forgotten")
        prompts = await asyncio.to_thread(hinted_prompts, self._prompter, turn, remembered)
        return msgspec.structs.replace(sample, hinted_prompts=prompts)

    def _proposed(self, sample: Sample, judgement: Judgement | None) -> Sequence[str]:
        """The selected hint; or all candidates, shortest first, if each token takes its own."""
        assert sample.hint is not None
        if self._settings.learning.hint_selection != "overlap-token":
            return [sample.hint]
        proposed = candidates_of(judgement.votes) if judgement else []
        # The wish of a comment is no vote's; it comes first.
        return (proposed if sample.hint in proposed else [sample.hint, *proposed])[:MOST_CANDIDATES]

    async def _out_of_memory(self, samples: Sequence[Sample], error: TrainerOutOfMemory) -> None:
        """Set the turn aside that does not fit in memory; the others of its batch are ready again. If no turn is to
        blame, all wait.
        """
        turn = next((one.turn_id for one in samples if one.turn_id and one.sample_id == error.sample_id), None)
        self._progress.note(MEMORY, str(error))
        if turn is None:
            raise error
        log.error("turn %s is set aside: %s", turn, error)
        await self._journal.add_quarantine(Quarantine(turn_id=turn, reason=f"{MEMORY}: {error}"))

    async def _failed(self, batch: Batch, error: TrainerError, live: PolicyVersion) -> None:
        """Try a batch whose step fails twice, then reject it, so that learning continues without it."""
        oldest = _oldest(batch)  # the batch grows while it is tried again
        self._failures = {oldest: self._failures.get(oldest, 0) + 1}
        if self._failures[oldest] < _TRIES:
            raise error
        await self._reject(batch, None, GuardVerdict(False, str(error)), live)

    def _show(self, version: PolicyVersion, report: StepReport) -> None:
        wanted = ("loss/total", "loss/distill", "loss/anchor", "kl/parent", "gradient/norm", "tokens")
        self._progress.figures = {
            **{name: round(report.metrics[name], 4) for name in wanted if name in report.metrics},
            **{"version": version.number, "step": report.step, "seconds": round(report.metrics["seconds"], 2)},
        }
        log.info("version %d: %s", version.number, self._progress.figures)


def _oldest(batch: Batch) -> str:
    return batch.samples[0].sample_id if batch.samples else ""


async def keep_engine_in_step(versions: Versions, progress: Progress) -> None:
    """Every second, make the engine serve the journal's live version."""
    asking = "asking the engine which version it serves"
    while True:
        try:
            await versions.reconcile()
            progress.recovered(asking)
        except (EngineError, JournalError) as error:
            progress.failed(error, asking)
        await asyncio.sleep(_RETRY)
