"""Versions of the weights: from a step to serving, and back to the right one after a crash.

The order that makes a crash harmless: checkpoint on disk, the guard's verdict on it, then the version and its samples
in the journal (one transaction), then the engine. Before the transaction the step did not happen and its samples are
ready again; after it the version is a candidate that passed the guard, and is published again. The journal says which
version is live; the engine and the trainer follow it. Another version may be made live at any time (rollback): a step
whose parent is no longer live does not happen, and if it was committed already it is kept as retired.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec

from openclaw_rl.learner.guard.guard import GuardVerdict
from openclaw_rl.learner.progress import Progress
from openclaw_rl.shared.checkpoints import SERVED, damage, nearest_intact, seal, sealed_digest
from openclaw_rl.shared.engine.protocol import Engine, EngineInfo
from openclaw_rl.shared.errors import ConfigError, EngineError, JournalError, TrainerError
from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.journal.views import Lesson
from openclaw_rl.shared.records import PolicyVersion
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.shared.trainer import Checkpoint, StepReport, Trainer

log = logging.getLogger(__name__)

_RETRY = 1.0
_LONGEST_RETRY = 10.0
SPARE_BYTES = 32 << 20
"""Space that a step leaves free: the journal is often on the same disk."""

DAMAGED = "checkpoint"
"""What the note on a damaged checkpoint in the learner's status is about."""


def checkpoint_of(version: PolicyVersion) -> Checkpoint:
    """The place of a version's weights."""
    step = int(version.metrics.get("step", version.number))
    return Checkpoint(path=version.checkpoint, served=str(Path(version.checkpoint) / SERVED), step=step)


def damage_of(version: PolicyVersion) -> str:
    """Damage of what engines load of a version's checkpoint; "" for none, and for the base."""
    return damage(Path(version.checkpoint), SERVED) if version.checkpoint else ""


def check_resume(settings: Settings) -> Path:
    """The checkpoint folder that `resume` names. Raises `ConfigError` if it is none."""
    folder = Path(settings.learning.resume).expanduser().resolve()
    missing = [name for name in ("meta.json", SERVED) if not (folder / name).exists()]
    if missing:
        raise ConfigError(
            f"resume = {settings.learning.resume!r} is no checkpoint ({' and '.join(missing)} not found in {folder}); "
            "name a folder such as DATA/checkpoints/7 of another data folder"
        )
    return folder


class Candidate(msgspec.Struct, frozen=True):
    """Weights on disk that are no version yet."""

    number: int
    checkpoint: Checkpoint


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
        self._digest: tuple[int | None, str] = (None, "")  # of the sealed weights of this version
        self.current: int | None = None

    async def start(self) -> None:
        """Make version 0 if the journal is new, finish what a crash interrupted, and bring the trainer to the newest
        version.
        """
        if await self._journal.version(0) is None:
            await self._journal.commit_version(PolicyVersion(number=0, parent=None, state="live", checkpoint=""))
        await asyncio.to_thread(self._sweep)
        if self._settings.learning.resume and await self._journal.next_version_number() == 1:
            await self._resume(check_resume(self._settings))
        for version in await self._journal.versions():
            if version.state != "candidate":
                continue
            if not version.guard.get("passed", False):
                await self._journal.set_version_state(
                    version.number,
                    "rejected",
                    {**version.guard, "reason": version.guard.get("reason") or "never finished"},
                )
                continue
            log.info("version %d was committed and not published: publishing it", version.number)
            await self.publish(version)
        await self.follow()

    async def _resume(self, source: Path) -> None:
        """Commit a copy of a checkpoint of other training as version 1, made from no samples."""
        if fault := await asyncio.to_thread(damage, source):
            raise ConfigError(f"resume = {str(source)!r} cannot be continued from: {fault}")
        if self._trainer is not None:
            try:
                await self._trainer.restore(str(source))
            except TrainerError as error:
                raise ConfigError(f"resume = {str(source)!r} cannot be gone on from: {error}") from error
        target = self._folder / "1"
        scratch = self._folder / ".1.resume.tmp"
        await asyncio.to_thread(_copied, source, scratch, target)
        version = PolicyVersion(
            number=1,
            parent=0,
            state="candidate",
            checkpoint=str(target),
            method="resumed",
            metrics={"step": _step_of(target)},
            guard={"passed": True, "reason": "", "resumed": str(source)},
        )
        await self._journal.commit_version(version)
        log.info("training continues from %s, as version 1", source)

    async def follow(self) -> PolicyVersion:
        """Bring the trainer's weights to the live version, if they are not."""
        live = await self._live()
        if self.current != live.number:
            live = await self._intact(live)
        if self._trainer is None:
            self.current = live.number
        elif self.current != live.number:
            await self._trainer.restore(live.checkpoint or None)
            self.current = live.number
            log.info("trainer restored to version %d", live.number)
        return live

    async def _intact(self, live: PolicyVersion) -> PolicyVersion:
        """The live version; its nearest intact ancestor takes over where its checkpoint is damaged. It is read whole
        where its weights are to be restored or loaded, not while they are at work.
        """
        while True:
            versions = {version.number: version for version in await self._journal.versions()}
            intact, fault = await asyncio.to_thread(nearest_intact, versions, live.number)
            if not fault:
                return live
            if await self._journal.replace_damaged(live.number, intact.number, fault):
                note = f"{fault}. Version {intact.number} is live instead"
                log.error("%s", note)
                self._progress.note(DAMAGED, note)
                return intact
            live = await self._live()

    async def undo(self, candidate: Candidate | None = None) -> None:
        """Take the trainer back to the live version after a step that does not count, and remove what it wrote, unless
        it was committed before it failed.
        """
        if candidate is not None and await self._journal.version(candidate.number) is None:
            await self._remove(Path(candidate.checkpoint.path))
        self.current = None
        await self.follow()

    async def save(self, parent: PolicyVersion, sample_ids: Sequence[str]) -> Candidate:
        """Write the trainer's weights as the next version, sealed, not yet in the journal. Raises `TrainerError`."""
        assert self._trainer is not None, "only a learner with a trainer makes versions"
        number = await self._journal.next_version_number()
        self._progress.now("saving", f"version {number}")
        checkpoint = await self._trainer.save(str(self._folder / str(number)))
        folder = Path(checkpoint.path)
        if folder.is_dir():
            try:
                await asyncio.to_thread(seal, folder, parent=parent.number, sample_ids=sample_ids)
            except OSError as error:
                await self._remove(folder)
                raise TrainerError(
                    f"{folder} cannot be sealed: {error}. Check the space and the rights there"
                ) from error
        return Candidate(number=number, checkpoint=checkpoint)

    async def show(self, candidate: Candidate) -> None:
        """Let the engine have a candidate next to the live version, so that it can be probed. Raises `EngineError`."""
        assert self._trainer is not None, "only a learner with a trainer makes versions"
        if (await self._engine.info()).several_versions:
            async with self._weights:
                await self._trainer.publish(candidate.checkpoint, candidate.number, self._engine, live=False)

    async def chosen_another(self, parent: PolicyVersion) -> bool:
        """True if another version was made live since."""
        return (await self._live()).number != parent.number

    async def reject(
        self,
        sample_ids: Sequence[str],
        report: StepReport | None,
        verdict: GuardVerdict,
        parent: PolicyVersion,
        candidate: Candidate | None = None,
    ) -> None:
        """Write down a step that does not count, quarantine its samples, remove its files, and take the trainer back to
        the parent.
        """
        number = await self._journal.next_version_number() if candidate is None else candidate.number
        version = PolicyVersion(
            number=number,
            parent=parent.number,
            state="rejected",
            checkpoint="",
            sample_ids=sample_ids,
            method=self._settings.learning.method,
            metrics={} if report is None else _finite(report),
            guard=verdict.report(),
        )
        await self._journal.commit_version(version)
        log.error("version %d rejected: %s", number, verdict.reason)
        # Also what a crash left there: the number is taken now, and an engine looks for versions by their folders.
        await self._remove(self._folder / str(number))
        await self.undo()

    async def accept(
        self,
        sample_ids: Sequence[str],
        report: StepReport,
        verdict: GuardVerdict,
        parent: PolicyVersion,
        candidate: Candidate,
        lessons: Sequence[Lesson] = (),
    ) -> PolicyVersion:
        """Commit, with what it learned from its samples, and publish. Raises `JournalError` when the step could not be
        committed.
        """
        version = PolicyVersion(
            number=candidate.number,
            parent=parent.number,
            state="candidate",
            checkpoint=candidate.checkpoint.path,
            sample_ids=sample_ids,
            method=self._settings.learning.method,
            metrics={**report.metrics, "step": report.step},
            guard=verdict.report(),
        )
        await self._journal.commit_version(version, lessons)
        self.current = candidate.number
        await self.publish(version)
        await self._prune()
        return version

    async def publish(self, version: PolicyVersion) -> None:
        """Make a committed version live; an engine that is away, or a journal that is full, is waited for. An engine
        that refuses it gets it rejected. Where another version was made live meanwhile, it is retired at once.
        """
        pause = _RETRY
        refused: GuardVerdict | None = None
        while True:
            self._progress.now("publishing", f"version {version.number}")
            try:
                if refused is not None:
                    await self._withdraw(version, refused)
                    return
                async with self._weights:
                    if await self._journal.may_go_live(version.number):
                        if fault := await asyncio.to_thread(damage_of, version):
                            raise EngineError(fault, status=400)
                        await self._load(version)
                    if await self._journal.make_live(version.number):
                        return
                log.warning("version %d is retired: another version was made live meanwhile", version.number)
                await self.reconcile()
                return
            except (EngineError, JournalError) as error:
                # It is committed: its samples are consumed, so there is no way but forward.
                if isinstance(error, EngineError) and error.status == 400:
                    refused = GuardVerdict(False, f"the engine cannot load it: {error}")
                    continue
                self._progress.failed(error, f"publishing version {version.number}")
                log.warning("publishing version %d: %s; trying again in %.0f s", version.number, error, pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_RETRY)

    async def _withdraw(self, version: PolicyVersion, verdict: GuardVerdict) -> None:
        """Reject a committed version."""
        await self._journal.set_version_state(version.number, "rejected", verdict.report())
        log.error("version %d rejected: %s", version.number, verdict.reason)
        await self._remove(Path(version.checkpoint))
        await self.undo()

    async def reconcile(self) -> bool:
        """Load the journal's live version into the engine, if it serves another (it came back, or was changed)."""
        async with self._weights:
            live = await self._journal.live_version()
            if live is None or self._serves(await self._engine.info(), live):
                return False
            live = await self._intact(live)
            await self._load(live)
            log.info("the engine serves version %d again", live.number)
            return True

    def _serves(self, info: EngineInfo, live: PolicyVersion) -> bool:
        """True if the engine serves this version, with the weights that the checkpoint was sealed with where it says
        which ones it loaded.
        """
        if info.live != live.number:
            return False
        if not info.digest or not live.checkpoint:
            return True
        if self._digest[0] != live.number:
            self._digest = (live.number, sealed_digest(Path(live.checkpoint)))
        return self._digest[1] in ("", info.digest)

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

    async def _remove(self, folder: Path) -> None:
        if folder.parent == self._folder:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    def _sweep(self) -> None:
        """Remove what a crash left half written."""
        if self._folder.is_dir():
            for path in self._folder.iterdir():
                if path.name.startswith(".") and path.suffix in (".tmp", ".old"):
                    shutil.rmtree(path, ignore_errors=True)

    async def lack_of_space(self, live: PolicyVersion) -> str:
        """The reason why a step made now could not be saved, "" if it could be: its checkpoint will be about as large
        as the live one.
        """
        return await asyncio.to_thread(self._lack_of_space, Path(live.checkpoint) if live.checkpoint else None)

    def _lack_of_space(self, like: Path | None) -> str:
        needed = SPARE_BYTES + (_bytes_of(like) if like is not None else 0)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            free = shutil.disk_usage(self._folder).free
        except OSError as error:
            return f"{self._folder} cannot be used: {error.strerror}"
        if free >= needed:
            return ""
        return (
            f"{free / 1e6:.0f} MB are free for {self._folder}, and a version takes {needed / 1e6:.0f} MB: free some "
            "space, or lower keep_checkpoints"
        )

    async def _prune(self) -> None:
        """Remove old checkpoints by number and size (`keep_checkpoints`), but never the live one, its parent, the
        pinned one and candidates. What the journal has marked as removed is never made live again.
        """
        versions = await self._journal.stored_versions()
        old = await asyncio.to_thread(self._old, versions, await self._journal.pinned())
        for number in await self._journal.begin_removal(old):
            await self._remove(self._folder / str(number))

    def _old(self, versions: Sequence[PolicyVersion], pinned: int | None) -> list[int]:
        """The versions whose checkpoints are too many, or too large together."""
        there = [version for version in versions if Path(version.checkpoint).is_dir()]
        needed = {version.number for version in versions if version.state in ("live", "candidate")}
        needed |= {version.parent or 0 for version in versions if version.state == "live"}
        needed |= set() if pinned is None else {pinned}
        numbers = [version.number for version in versions]
        keep = set(numbers[-self._settings.learning.checkpoints_kept :])
        room = self._settings.learning.checkpoint_bytes
        old = []
        # Those that stay anyhow take their room first.
        for version in sorted(there, key=lambda one: (one.number in needed, one.number), reverse=True):
            path = Path(version.checkpoint)
            room -= _bytes_of(path)
            stays = version.number in needed or (version.number in keep and room >= 0)
            if not stays and path == self._folder / str(version.number):
                old.append(version.number)
        return old


def _bytes_of(folder: Path) -> int:
    """The size of a folder's files; one that goes away meanwhile counts as none."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            total += path.stat().st_size if path.is_file() else 0
    return total


def _copied(source: Path, scratch: Path, target: Path) -> None:
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        shutil.copytree(source, scratch)
        shutil.rmtree(target, ignore_errors=True)
        scratch.rename(target)
    except OSError as error:
        raise TrainerError(f"{source} cannot be copied to {target}: {error}") from error


def _step_of(checkpoint: Path) -> int:
    try:
        return int(json.loads((checkpoint / "meta.json").read_text(encoding="utf-8"))["step"])
    except (OSError, ValueError, KeyError, TypeError):
        return 1


def _finite(report: StepReport) -> dict[str, float]:
    """The figures that JSON can hold."""
    return {
        name: value for name, value in msgspec.structs.asdict(report)["metrics"].items() if abs(value) < float("inf")
    }
