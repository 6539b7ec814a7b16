"""States and weights that a provider keeps for us, and is paid for. Those that no folder here names any more are
removed there when the next version is saved.

A save is written down by its name before it is asked for. A kill in between leaves the name in the registry; the path
is not known, so the name stays there, and a person is asked to look for it at the provider.

A service removes only what it saved itself. A checkpoint that was copied from another service's (`resume`) names what
that one saved and may remove, so it is given its own state and weights before it is served (`adopt`). A copy that is
only served, with training off, has none: its source has to be kept.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from pathlib import Path

import msgspec

from openclaw_rl.shared.checkpoints import SERVED
from openclaw_rl.shared.errors import EngineError
from openclaw_rl.shared.gather import gather
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_cloud import pointer
from openclaw_rl.trainer_cloud.artifacts.registry import Artifact, ArtifactRegistry
from openclaw_rl.trainer_cloud.pointer import BadPointer, Pointer
from openclaw_rl.trainer_cloud.provider import CloudError, Provider, Training

log = logging.getLogger(__name__)

SWEEP_SECONDS = 5.0
_AT_ONCE = 8
_KINDS = ("state", "sampler")
_SAVING = "saving"


class ArtifactCleanup:
    """States and weights that were saved for the checkpoints of one data folder."""

    def __init__(self, provider: Provider, settings: Settings) -> None:
        self._provider = provider
        self._model = settings.engine.model
        self._checkpoints = settings.checkpoints_path
        self._registry = ArtifactRegistry(settings.serve.data)
        self._saving: set[str] = set()
        self._last: set[str] = set()
        """Names that could not be removed before: tried after the others, so that they take no other's time."""

    async def save(self, training: Training, name: str, *, weights: bool, folder: Path | None) -> tuple[str, str]:
        """Save a training's state, and with `weights` what is sampled from ("" without), for a checkpoint's folder, or
        only to continue from; the paths of both. Raises `CloudError`.
        """
        place = "" if folder is None else str(folder.resolve())
        planned = self._artifact(_SAVING, name, place)
        self._saving.add(name)
        try:
            await asyncio.to_thread(self._registry.add, planned)
            try:
                state = await training.save_state(name)
            except CloudError as error:
                if error.undone:
                    await asyncio.to_thread(self._registry.remove, planned)
                raise
            await asyncio.to_thread(self._registry.add, self._artifact("state", state, place))
            sampler = ""
            if weights:
                sampler = await training.save_sampler(name)
                await asyncio.to_thread(self._registry.add, self._artifact("sampler", sampler, place))
            await asyncio.to_thread(self._registry.remove, planned)
        finally:
            self._saving.discard(name)
        return state, sampler

    async def discard(self, state: str, sampler: str) -> None:
        """Remove a state and weights that were saved for no folder. Raises `CloudError`; a later sweep tries again."""
        for kind, name in zip(_KINDS, (state, sampler), strict=True):
            await self._provider.delete(name)
            await asyncio.to_thread(self._registry.remove, self._artifact(kind, name, ""))

    async def check(self) -> None:
        """Raise `CloudError` if what is made could not be written down, before it is paid for."""
        await asyncio.to_thread(self._registry.check)

    async def foreign(self, folder: Path) -> bool:
        """True if a checkpoint of this data folder depends on what another service saved, and may remove. Never raises:
        one that cannot be read counts as its own.
        """
        try:
            return await asyncio.to_thread(self._foreign, folder)
        except (BadPointer, CloudError, OSError) as error:
            log.warning("whose state and weights %s names cannot be found out: %s", folder, error)
            return False

    async def adopt(self, folder: Path, origin: Pointer | None) -> Pointer | None:
        """Give a checkpoint with another's state and weights its own, and name those in it; `origin` comes back, as it
        is now if it was this one. Where the provider refuses, all stays as it is. Raises `EngineError`, after which it
        can be tried again.
        """
        try:
            found = await asyncio.to_thread(self._pointer, folder)
            training = await self._provider.resume(found.state, rank=found.rank)
            try:
                name = f"openclaw-rl-{found.step}-{secrets.token_hex(4)}"
                state, sampler = await self.save(training, name, weights=True, folder=folder)
            finally:
                await training.close()
            ours = msgspec.structs.replace(found, state=state, sampler=sampler)
            await asyncio.to_thread(ours.rewrite_checkpoint, folder)
        except CloudError as error:
            if error.trouble == "refused":
                log.warning("%s depends on what another service saved, which cannot be copied: %s", folder, error)
                return origin
            raise EngineError(f"{folder} cannot be given its own state at the provider: {error}") from error
        except (BadPointer, OSError) as error:
            raise EngineError(f"{folder} cannot be given its own state: {error}; give access there") from error
        log.info("%s has its own state and weights at %s now", folder, self._provider.name)
        return ours if origin == found else origin

    async def sweep(self, current: Pointer | None) -> None:
        """Remove what is not needed: not `current`, and named in no folder that is there. What cannot be removed within
        a few seconds is tried again next time. Never raises.
        """
        free = asyncio.Semaphore(_AT_ONCE)
        try:
            async with asyncio.timeout(SWEEP_SECONDS):
                artifacts = await asyncio.to_thread(self._unneeded, current)
                await gather(*(self._remove(artifact, free) for artifact in artifacts))
        except TimeoutError:
            log.warning("%s takes long to remove what is not needed any more: the rest waits", self._provider.name)
        except (CloudError, OSError) as error:
            log.warning("what is not needed any more at %s stays there: %s", self._provider.name, error)

    async def _remove(self, artifact: Artifact, free: asyncio.Semaphore) -> None:
        name, where = artifact.name, artifact.provider
        async with free:
            again = name in self._last
            self._last.add(name)
            if artifact.kind == _SAVING:
                if not again:
                    advice = "look for the name at %s, and remove what is kept under it"
                    log.warning(f"a save named %s was cut off: {advice}", name, where)
                return
            try:
                await self._provider.delete(name)
                await asyncio.to_thread(self._registry.remove, artifact)
                self._last.discard(name)
            except CloudError as error:
                log.warning("%s at %s is not needed any more and stays there: %s", name, where, error)

    def _artifact(self, kind: str, name: str, folder: str) -> Artifact:
        return Artifact(self._provider.name, kind, name, purpose="checkpoint", folder=folder)

    def _pointer(self, folder: Path) -> Pointer:
        return pointer.read(folder / SERVED, provider=self._provider.name, model=self._model)

    def _saved(self) -> list[Artifact]:
        return [artifact for kind in _KINDS for artifact in self._registry.find(self._provider.name, kind)]

    def _foreign(self, folder: Path) -> bool:
        if folder.resolve().parent != self._checkpoints:
            return False  # the source itself, which is not ours to change
        found = self._pointer(folder)
        own = {one.name for one in self._saved() if not one.folder or Path(one.folder).parent == self._checkpoints}
        return not {found.state, found.sampler} - {""} <= own

    def _unneeded(self, current: Pointer | None) -> list[Artifact]:
        kept = set() if current is None else {current.state, current.sampler}
        for file in self._checkpoints.glob(f"*/{SERVED}/{pointer.FILE}"):
            try:  # also where the data folder was moved since it was written down
                found = self._pointer(file.parent.parent)
            except BadPointer:
                continue
            kept |= {found.state, found.sampler}
        saved = [one for one in self._saved() if one.name not in kept and not self._named(one)]
        cut_off = [one for one in self._registry.find(self._provider.name, _SAVING) if one.name not in self._saving]
        return sorted([*saved, *cut_off], key=lambda artifact: artifact.name in self._last)

    def _named(self, artifact: Artifact) -> bool:
        """True if the folder that it was made for is there and names it. One that cannot be read keeps it."""
        if not artifact.folder or not Path(artifact.folder).is_dir():
            return False
        try:
            found = self._pointer(Path(artifact.folder))
        except BadPointer:
            return True
        return artifact.name in (found.state, found.sampler)
