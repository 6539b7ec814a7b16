"""The learner process: judge loop, learner loop, audit, and the watch over the engine's version. Run it as
`python -m openclaw_rl.learner.main`.

Settings come from the environment (`OPENCLAW_RL_*`). The process is niced: chat goes first.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import sys
from pathlib import Path

from openclaw_rl.learner.audit import Auditor
from openclaw_rl.learner.guard import probes
from openclaw_rl.learner.judge.create import create
from openclaw_rl.learner.judge.loop import JudgeLoop
from openclaw_rl.learner.judge.protocol import Judge
from openclaw_rl.learner.loop import Learner, keep_engine_in_step
from openclaw_rl.learner.methods import method
from openclaw_rl.learner.progress import Progress
from openclaw_rl.learner.reporting.report import Reporter, Sink
from openclaw_rl.learner.reporting.tensorboard import TensorBoard
from openclaw_rl.learner.reporting.wandb import WeightsAndBiases, configuration
from openclaw_rl.learner.rollouts import hooks
from openclaw_rl.learner.rollouts.rehearsal import anchor_prompts
from openclaw_rl.learner.teacher import check_teacher, create_teacher
from openclaw_rl.learner.versions import Versions, check_resume
from openclaw_rl.shared.backends import create_engine, create_trainer, launch_trainer, resolve_backend
from openclaw_rl.shared.engine.protocol import Engine
from openclaw_rl.shared.errors import ConfigError, JournalError, OpenClawRLError
from openclaw_rl.shared.journal import AsyncJournal, Journal
from openclaw_rl.shared.logs import configure_logs
from openclaw_rl.shared.loop_lag import watch_lag
from openclaw_rl.shared.memory import return_freed_memory
from openclaw_rl.shared.objective.custom_loss import load_loss
from openclaw_rl.shared.process import die_with_parent
from openclaw_rl.shared.rendering.prompter import Prompter
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.shared.settings.sources import load

log = logging.getLogger("learner")

NICENESS = 10
CLOSING_SECONDS = 3.0


async def run(settings: Settings, stop: asyncio.Event) -> None:
    """Run the loops until `stop` is set, then leave cleanly. Raises `OpenClawRLError` when it cannot start."""
    check_code(settings)
    check_start(settings)
    progress = Progress()
    journal = AsyncJournal(settings.serve.journal_path)
    engine: Engine | None = None
    judging: Judge | None = None
    try:
        for subject, deaths in (await journal.count_deaths()).items():
            log.error("the learner ended while it worked on %s (%d times)", subject, deaths)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(progress.beat(journal), name="heartbeat")]
            tasks.append(group.create_task(watch_lag(progress.late), name="loop lag"))
            tasks.append(group.create_task(return_freed_memory(), name="memory"))
            engine = create_engine(settings, owns=True)
            in_flight: set[str] = set()
            judging = create(settings, engine)
            judge = JudgeLoop(journal, judging, settings, progress, in_flight)
            tasks.append(group.create_task(judge.run(), name="judge"))
            tasks.append(group.create_task(_learn(settings, journal, engine, judge, in_flight, progress), name="learn"))
            auditor = Auditor(journal, engine, settings, progress)
            tasks.append(group.create_task(auditor.run(), name="audit"))
            for sink in await sinks_of(settings, journal):
                tasks.append(group.create_task(Reporter(journal, sink, progress).run(), name=f"report to {sink.name}"))
            await stop.wait()
            for task in tasks:
                task.cancel()
            await _end_work(journal)  # at once: closing may take longer than this process is given
    except* OpenClawRLError as errors:
        raise _first(errors) from errors
    finally:
        await _end_work(journal)
        if judging is not None:
            await judging.close()
        if engine is not None:
            await engine.close()
        await journal.close()


async def _end_work(journal: AsyncJournal) -> None:
    with contextlib.suppress(JournalError):
        await journal.stop_work()


def check_start(settings: Settings) -> None:
    """Raise `ConfigError` for files in the settings that the learner cannot use."""
    for setting in (hooks.ROLLOUT, hooks.GENERATE):
        hooks.load(settings, setting)
    if settings.learning.anchors or (settings.guard.enabled and settings.guard.answers):
        anchor_prompts(settings)
    if settings.guard.enabled:
        probes.read(settings.guard.probes)
    if settings.learning.resume and not _has_versions(settings):
        check_resume(settings)  # later its folder may be gone


def _has_versions(settings: Settings) -> bool:
    """True if the journal has versions besides the base."""
    if "://" not in settings.serve.journal_path and not Path(settings.serve.journal_path).exists():
        return False
    with contextlib.closing(Journal(settings.serve.journal_path)) as journal:
        return journal.next_version_number() > 1


def check_code(settings: Settings) -> None:
    """Raise `ConfigError` for a custom method or loss that cannot be loaded. It may import torch, so the supervisor
    leaves this to the learner.
    """
    found = method(settings.learning.method, settings)
    if settings.learning.train:
        check_teacher(settings, found)
    if settings.learning.custom_loss and settings.learning.train:
        try:
            load_loss(settings.learning.custom_loss)
        except ConfigError as error:
            raise ConfigError(f"custom_loss = {settings.learning.custom_loss!r}: {error}") from error


def _first(errors: BaseExceptionGroup[OpenClawRLError]) -> OpenClawRLError:
    """The first error of a group that may hold groups."""
    first = errors.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


async def sinks_of(settings: Settings, journal: AsyncJournal) -> list[Sink]:
    """The wanted sinks, not open yet. A W&B run gets its name once per journal and project."""
    sinks: list[Sink] = []
    if settings.learning.tensorboard:
        sinks.append(TensorBoard(settings.serve.data / "tensorboard"))
    if settings.learning.wandb:
        key = f"wandb run of {settings.learning.wandb}"
        run = await journal.get_control(key)
        if not run:
            run = secrets.token_hex(4)
            await journal.set_control(key, run)
        sinks.append(
            WeightsAndBiases(settings.learning.wandb, run, settings.serve.data.resolve(), configuration(settings))
        )
    return sinks


async def _learn(
    settings: Settings, journal: AsyncJournal, engine: Engine, judge: JudgeLoop, in_flight: set[str], progress: Progress
) -> None:
    trainer = teacher = None
    try:
        if settings.learning.train:
            progress.now("loading the policy", settings.engine.model)
            trainer = await asyncio.to_thread(create_trainer, settings)
        versions = Versions(journal, engine, trainer, settings, progress)
        await _started(versions, progress)
        async with asyncio.TaskGroup() as group:
            group.create_task(keep_engine_in_step(versions, progress), name="reconcile")
            if trainer is None:
                progress.now("training is off")
                return
            prompter = await asyncio.to_thread(Prompter.from_settings, settings)
            teacher = await create_teacher(settings, method(settings.learning.method, settings))
            learner = Learner(
                journal,
                engine,
                trainer,
                versions,
                prompter,
                settings,
                progress,
                wake=judge.judged,
                in_flight=in_flight,
                teacher=teacher,
            )
            group.create_task(learner.run(), name="learner")
    finally:
        if teacher is not None:
            await teacher.close()
        if trainer is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSING_SECONDS):
                    await trainer.close()


async def _started(versions: Versions, progress: Progress) -> None:
    """Start from the journal's live version; wait for the engine, and report a broken checkpoint until it is mended."""
    while True:
        try:
            await versions.start()
            return
        except ConfigError:
            raise
        except OpenClawRLError as error:
            progress.failed(error, "starting")
            log.error("the learner cannot start yet: %s", error)
            await asyncio.sleep(2.0)


def main() -> int:
    """Entry of the process; the exit code."""
    die_with_parent()
    try:
        settings = resolve_backend(load({})[0])
    except OpenClawRLError as error:
        print(f"ERROR {error}", file=sys.stderr)
        return 2
    configure_logs("learner", settings.serve.log_level, form=settings.serve.log_format)
    for noisy in ("httpx", "LiteLLM", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    try:
        code = launch_trainer(settings) if settings.learning.train else None
        if code is not None:
            return code
        os.nice(NICENESS)
        asyncio.run(_until_stopped(settings))
    except OpenClawRLError as error:
        log.error("%s", error)
        return 1
    return 0


async def _until_stopped(settings: Settings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await run(settings, stop)
    # A thread may be in the middle of a step or of loading the policy. Nothing of that counts before it is committed,
    # so it is not waited for, as the end of the event loop would.
    logging.shutdown()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
