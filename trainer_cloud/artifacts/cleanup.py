"""States and weights that a provider keeps for us, and is paid for. Those that no folder here names any more are
removed there when the next version is saved.

What will be saved is written down by its name before it is asked for. A kill in between leaves the name on the list;
where it is nobody was told, so it stays there, and a person is told to look for it at the provider.

A service removes only what it saved itself. A checkpoint that was copied from another service's (`resume`) names what
that one saved and may remove, so it is given a state and weights of its own before it is served (`own`). A copy that is
only served, with training off, has none: its source has to be kept.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from pathlib import Path

import msgspec

from openclaw_rl.shared.errors import EngineError
from openclaw_rl.shared.files import read_json, write_json
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_cloud import pointer
from openclaw_rl.trainer_cloud.artifacts.registry import Created, Thing
from openclaw_rl.trainer_cloud.pointer import BadPointer, Pointer
from openclaw_rl.trainer_cloud.provider import CloudError, Provider, Training

log = logging.getLogger(__name__)

SWEEP_SECONDS = 5.0
_AT_ONCE = 8
_KINDS = ("state", "sampler")
_SAVING = "saving"
_SERVED = "served"
_META = "meta.json"


class Remains:
    """What was saved for the checkpoints of one data folder."""

    def __init__(self, provider: Provider, settings: Settings) -> None:
        self._provider = provider
        self._model = settings.model
        self._checkpoints = settings.checkpoints_path
        self._created = Created(settings.data)
        self._saving: set[str] = set()
        self._last: set[str] = set()
        """What could not be removed before: tried after the others, so that it takes no other's time."""

    async def save(self, training: Training, name: str, *, weights: bool, folder: Path | None) -> tuple[str, str]:
        """Have a training's state kept, and with `weights` what is sampled from ("" without), for a checkpoint's
        folder, or for nothing but going on; where they are. Raises `CloudError`.
        """
        place = "" if folder is None else str(folder.resolve())
        planned = self._thing(_SAVING, name, place)
        self._saving.add(name)
        try:
            await asyncio.to_thread(self._created.add, planned)
            try:
                state = await training.save_state(name)
            except CloudError as error:
                if error.undone:
                    await asyncio.to_thread(self._created.remove, planned)
                raise
            await asyncio.to_thread(self._created.add, self._thing("state", state, place))
            sampler = ""
            if weights:
                sampler = await training.save_sampler(name)
                await asyncio.to_thread(self._created.add, self._thing("sampler", sampler, place))
            await asyncio.to_thread(self._created.remove, planned)
        finally:
            self._saving.discard(name)
        return state, sampler

    async def check(self) -> None:
        """Raise `CloudError` if what is made could not be written down, before it is paid for."""
        await asyncio.to_thread(self._created.check)

    async def foreign(self, folder: Path) -> bool:
        """Whether a checkpoint of this data folder depends on what another service saved, and may remove. Never raises:
        one that cannot be told counts as its own.
        """
        try:
            return await asyncio.to_thread(self._foreign, folder)
        except (BadPointer, CloudError, OSError) as error:
            log.warning("whose state and weights %s names cannot be told: %s", folder, error)
            return False

    async def own(self, folder: Path, origin: Pointer | None) -> Pointer | None:
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
            await asyncio.to_thread(_renamed, folder, ours)
        except CloudError as error:
            if error.trouble == "refused":
                log.warning("%s depends on what another service saved, which cannot be copied: %s", folder, error)
                return origin
            raise EngineError(f"{folder} cannot be given a state of its own at the provider: {error}") from error
        except (BadPointer, OSError) as error:
            raise EngineError(f"{folder} cannot be given a state of its own: {error}; give access there") from error
        log.info("%s has a state and weights of its own at %s now", folder, self._provider.name)
        return ours if origin == found else origin

    async def sweep(self, current: Pointer | None) -> None:
        """Remove what nobody needs: not `current`, and named in no folder that is there. What cannot be removed within
        a few seconds is tried again next time. Never raises.
        """
        free = asyncio.Semaphore(_AT_ONCE)
        tasks: list[asyncio.Task[None]] = []
        try:
            async with asyncio.timeout(SWEEP_SECONDS):
                things = await asyncio.to_thread(self._unneeded, current)
                tasks += [asyncio.create_task(self._removed(thing, free)) for thing in things]
                await asyncio.gather(*tasks)
        except TimeoutError:
            log.warning("%s takes long to remove what is not needed any more: the rest waits", self._provider.name)
        except (CloudError, OSError) as error:
            log.warning("what is not needed any more at %s stays there: %s", self._provider.name, error)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _removed(self, thing: Thing, free: asyncio.Semaphore) -> None:
        async with free:
            again = thing.name in self._last
            self._last.add(thing.name)
            if thing.kind == _SAVING:
                if not again:
                    log.warning(
                        "a save named %s was cut off: look for the name at %s, and remove what is kept under it",
                        thing.name,
                        thing.provider,
                    )
                return
            try:
                await self._provider.delete(thing.name)
                await asyncio.to_thread(self._created.remove, thing)
                self._last.discard(thing.name)
            except CloudError as error:
                log.warning("%s at %s is not needed any more and stays there: %s", thing.name, thing.provider, error)

    def _thing(self, kind: str, name: str, folder: str) -> Thing:
        return Thing(self._provider.name, kind, name, purpose="checkpoint", folder=folder)

    def _pointer(self, folder: Path) -> Pointer:
        return pointer.read(folder / _SERVED, provider=self._provider.name, model=self._model)

    def _listed(self) -> list[Thing]:
        return [thing for kind in _KINDS for thing in self._created.of(self._provider.name, kind)]

    def _foreign(self, folder: Path) -> bool:
        if folder.resolve().parent != self._checkpoints:
            return False  # the source itself, which is nobody's to change
        found = self._pointer(folder)
        own = {one.name for one in self._listed() if not one.folder or Path(one.folder).parent == self._checkpoints}
        return not {found.state, found.sampler} - {""} <= own

    def _unneeded(self, current: Pointer | None) -> list[Thing]:
        kept = set() if current is None else {current.state, current.sampler}
        for file in self._checkpoints.glob(f"*/{_SERVED}/{pointer.FILE}"):
            try:  # also where the data folder was moved since it was written down
                found = self._pointer(file.parent.parent)
            except BadPointer:
                continue
            kept |= {found.state, found.sampler}
        things = [thing for thing in self._listed() if thing.name not in kept and not self._named(thing)]
        cut_off = [one for one in self._created.of(self._provider.name, _SAVING) if one.name not in self._saving]
        return sorted([*things, *cut_off], key=lambda thing: thing.name in self._last)

    def _named(self, thing: Thing) -> bool:
        """Whether the folder that it was made for is there and names it. One that cannot be read keeps it."""
        if not thing.folder or not Path(thing.folder).is_dir():
            return False
        try:
            found = self._pointer(Path(thing.folder))
        except BadPointer:
            return True
        return thing.name in (found.state, found.sampler)


def _renamed(folder: Path, found: Pointer) -> None:
    """Write other paths into a checkpoint; the file that counts comes last."""
    write_json(folder / _META, {**(read_json(folder / _META) or {}), **msgspec.structs.asdict(found)})
    write_json(folder / _SERVED / pointer.FILE, msgspec.structs.asdict(found))
