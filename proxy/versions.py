"""The versions of the policy that clients may ask for by number."""

from __future__ import annotations

import logging
from pathlib import Path

from proxy.engine_watch import EngineWatch
from proxy.model_names import ModelNames
from shared.engine import Engine
from shared.errors import EngineError
from shared.journal import AsyncJournal

log = logging.getLogger(__name__)

SERVED_FOLDER = "served"


class Versions:
    """Sees to it that the engine has a version before a request asks for it."""

    def __init__(self, engine: Engine, watch: EngineWatch, journal: AsyncJournal, names: ModelNames) -> None:
        self._engine = engine
        self._watch = watch
        self._journal = journal
        self._names = names

    async def require(self, number: int) -> None:
        """Have version `number` served beside the live one. Raises `NotFound` if there is none, `EngineError` if it
        cannot be loaded.
        """
        if self._knows(number):
            return
        await self._watch.refresh()
        if self._knows(number):
            return
        version = await self._journal.version(number)
        if version is None or not version.checkpoint:
            raise self._names.unknown(self._names.served(number))
        if self._watch.info is None:
            raise EngineError(self._watch.error)
        folder = Path(version.checkpoint) / SERVED_FOLDER
        try:
            await self._engine.load(number, str(folder), live=False)
        except EngineError as error:
            log.warning("version %d cannot be loaded from %s: %s", number, folder, error)
            raise self._names.unknown(self._names.served(number)) from error
        await self._watch.refresh()

    def names(self) -> list[str]:
        """The model names that clients can ask for now, without aliases."""
        info = self._watch.info
        numbers = sorted(info.versions) if info is not None else []
        return [self._names.own, *map(self._names.served, numbers)]

    def _knows(self, number: int) -> bool:
        info = self._watch.info
        return info is not None and number in info.versions
