"""Versions of the weights: from a step to serving, and back to the right one after a crash.

The order that makes a crash harmless: checkpoint on disk, then the version and its samples in the journal (one
transaction), then the engine, then the verdict. Before the transaction the step did not happen and its samples are
ready again; after it the version is a candidate that passed the guard, and is published again. The journal says which
version is live; the engine and the trainer follow it.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec

from learner.guard import Verdict
from learner.progress import Progress
from shared.engine import Engine
from shared.errors import EngineError, JournalError, TrainerError
from shared.journal import AsyncJournal
from shared.records import PolicyVersion
from shared.settings import Settings
from shared.trainer import Checkpoint, StepReport, Trainer

log = logging.getLogger(__name__)

_RETRY = 1.0
_LONGEST_RETRY = 10.0


def checkpoint_of(version: PolicyVersion) -> Checkpoint:
    """Where a version's weights are."""
    step = int(version.metrics.get("step", version.number))
    return Checkpoint(path=version.checkpoint, served=str(Path(version.checkpoint) / "served"), step=step)


class Versions:
    """Commits, publishes, rejects and prunes. `trainer` is `None` where nothing is trained. `current` is the version
    whose weights the trainer holds, `None` before `start`."""

    def __init__(
        self, journal: AsyncJournal, engine: Engine, trainer: Trainer | None, settings: Settings, progress: Progress
    ) -> None:
        self._journal = journal
        self._engine = engine
        self._trainer = trainer
        self._settings = settings
        self._progress = progress
        self._folder = settings.checkpoints_path
        self._weights = asyncio.Lock()
        self.current: int | None = None

    async def start(self) -> None:
        """Make version 0 if the journal is new, finish what a crash interrupted, and bring the trainer to the newest
        version.
        """
        if await self._journal.version(0) is None:
            await self._journal.commit_version(PolicyVersion(number=0, parent=None, state="live", checkpoint=""))
        await asyncio.to_thread(self._sweep)
        for version in await self._journal.versions():
            if version.state != "candidate":
                continue
            live = await self._live()
            if version.number < live.number or not version.guard.get("passed", False):
                await self._journal.set_version_state(
                    version.number,
                    "rejected",
                    {**version.guard, "reason": version.guard.get("reason") or "never finished"},
                )
                continue
            log.info("version %d was committed and not published: publishing it", version.number)
            await self.publish(version)
        await self.follow()

    async def follow(self) -> PolicyVersion:
        """Bring the trainer's weights to the live version, if they are not."""
        live = await self._live()
        if self._trainer is not None and self.current != live.number:
            await self._trainer.restore(live.checkpoint or None)
            self.current = live.number
            log.info("trainer restored to version %d", live.number)
        return live

    async def undo(self) -> None:
        """Take the trainer back to the live version after a step that does not count."""
        self.current = None
        await self.follow()

    async def reject(self, sample_ids: Sequence[str], report: StepReport | None, verdict: Verdict) -> None:
        """Write down a step that does not count, quarantine its samples, and take the trainer back to the parent."""
        parent = await self._live()
        version = PolicyVersion(
            number=await self._journal.next_version_number(),
            parent=parent.number,
            state="rejected",
            checkpoint="",
            sample_ids=sample_ids,
            method=self._settings.method,
            metrics={} if report is None else _finite(report),
            guard=verdict.report(),
        )
        await self._journal.commit_version(version)
        log.error("version %d rejected: %s", version.number, verdict.reason)
        await self.undo()

    async def accept(self, sample_ids: Sequence[str], report: StepReport, verdict: Verdict) -> PolicyVersion:
        """Save, commit, publish. Raises `TrainerError` or `JournalError` when the step could not be committed."""
        assert self._trainer is not None, "only a learner with a trainer accepts versions"
        parent = await self._live()
        number = await self._journal.next_version_number()
        self._progress.now("saving", f"version {number}")
        checkpoint = await self._trainer.save(str(self._folder / str(number)))
        version = PolicyVersion(
            number=number,
            parent=parent.number,
            state="candidate",
            checkpoint=checkpoint.path,
            sample_ids=sample_ids,
            method=self._settings.method,
            metrics={**report.metrics, "step": report.step},
            guard=verdict.report(),
        )
        await self._journal.commit_version(version)
        self.current = number
        await self.publish(version)
        await asyncio.to_thread(self._prune, await self._journal.versions())
        return version

    async def publish(self, version: PolicyVersion) -> None:
        """Make a committed version live; an engine that is away, or a journal that is full, is waited for. An engine
        that refuses it gets it rejected.
        """
        pause = _RETRY
        while True:
            self._progress.now("publishing", f"version {version.number}")
            try:
                async with self._weights:
                    await self._load(version)
                    await self._journal.set_version_state(version.number, "live")
                return
            except (EngineError, JournalError) as error:
                # It is committed: its samples are consumed, so there is no way but forward.
                if isinstance(error, EngineError) and error.status == 400:
                    verdict = Verdict(False, f"the engine cannot load it: {error}")
                    await self._journal.set_version_state(version.number, "rejected", verdict.report())
                    log.error("version %d rejected: %s", version.number, verdict.reason)
                    await self.undo()
                    return
                self._progress.failed(error, f"publishing version {version.number}")
                log.warning("publishing version %d: %s; trying again in %.0f s", version.number, error, pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_RETRY)

    async def reconcile(self) -> bool:
        """Make the engine's live version the journal's, if it is another (the engine came back, or was told something
        else).
        """
        async with self._weights:
            live = await self._journal.live_version()
            if live is None or (await self._engine.info()).live == live.number:
                return False
            await self._load(live)
            log.info("the engine serves version %d again", live.number)
            return True

    async def _load(self, version: PolicyVersion) -> None:
        if version.number == 0:
            await self._engine.load(0, (await self._engine.info()).model_path, live=True)
        elif self._trainer is not None:
            await self._trainer.publish(checkpoint_of(version), version.number, self._engine, live=True)
        else:
            await self._engine.load(version.number, checkpoint_of(version).served, live=True)

    async def _live(self) -> PolicyVersion:
        live = await self._journal.live_version()
        if live is None:
            raise TrainerError("The journal names no live version; it was changed by hand or is not ours")
        return live

    def _sweep(self) -> None:
        """Remove what a crash left half written."""
        if self._folder.is_dir():
            for path in self._folder.iterdir():
                if path.name.startswith(".") and path.suffix in (".tmp", ".old"):
                    shutil.rmtree(path, ignore_errors=True)

    def _prune(self, versions: Sequence[PolicyVersion]) -> None:
        """Remove old checkpoints: all but the newest `keep_checkpoints`, the live one, its parent and candidates."""
        served = [version for version in versions if version.checkpoint]
        keep = {version.number for version in served[-self._settings.keep_checkpoints :]}
        for version in versions:
            if version.state == "live":
                keep |= {version.number, version.parent if version.parent is not None else 0}
            elif version.state == "candidate":
                keep.add(version.number)
        for version in served:
            path = Path(version.checkpoint)
            if version.number not in keep and path.parent == self._folder and path.is_dir():
                shutil.rmtree(path, ignore_errors=True)


def _finite(report: StepReport) -> dict[str, float]:
    """The figures that JSON can hold."""
    return {
        name: value for name, value in msgspec.structs.asdict(report)["metrics"].items() if abs(value) < float("inf")
    }
