"""States and weights that a provider keeps for us, and is paid for. Those that no folder here names any more are
removed there when the next version is saved.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from shared.settings import Settings
from trainer_cloud import pointer
from trainer_cloud.created import Created, Thing
from trainer_cloud.pointer import BadPointer, Pointer
from trainer_cloud.provider import CloudError, Provider

log = logging.getLogger(__name__)

_KINDS = ("state", "sampler")


class Remains:
    """What was saved for the checkpoints of one data folder."""

    def __init__(self, provider: Provider, settings: Settings) -> None:
        self._provider = provider
        self._model = settings.model
        self._created = Created(settings.data)

    async def note(self, found: Pointer, folder: Path | None) -> None:
        """Write down what was kept, for a checkpoint's folder, or for nothing but going on."""
        await asyncio.to_thread(self._note, found, "" if folder is None else str(folder.resolve()))

    async def sweep(self, current: Pointer | None) -> None:
        """Remove what nobody needs: not `current`, and named in no folder that is there. What cannot be removed now is
        tried again next time.
        """
        for thing in await asyncio.to_thread(self._unneeded, current):
            try:
                await self._provider.delete(thing.name)
            except CloudError as error:
                log.warning("%s at %s is not needed any more and stays there: %s", thing.name, thing.provider, error)
                return
            await asyncio.to_thread(self._created.remove, thing)

    def _note(self, found: Pointer, folder: str) -> None:
        for kind in _KINDS:
            path = getattr(found, kind)
            if path:
                self._created.add(Thing(self._provider.name, kind, path, purpose="checkpoint", folder=folder))

    def _unneeded(self, current: Pointer | None) -> list[Thing]:
        kept = set() if current is None else {current.state, current.sampler}
        things = [thing for kind in _KINDS for thing in self._created.of(self._provider.name, kind)]
        return [thing for thing in things if thing.name not in kept and not self._named(thing)]

    def _named(self, thing: Thing) -> bool:
        """Whether the folder that it was made for is there and names it. One that cannot be read keeps it."""
        if not thing.folder or not Path(thing.folder).is_dir():
            return False
        try:
            found = pointer.read(Path(thing.folder) / "served", provider=self._provider.name, model=self._model)
        except BadPointer:
            return True
        return thing.name in (found.state, found.sampler)
