"""The versions of the policy that clients may ask for by number, and the one that is live."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from openclaw_rl.proxy.engine.model_names import ModelNames
from openclaw_rl.proxy.engine.watch import EngineWatch
from openclaw_rl.shared.checkpoints import SERVED, damage
from openclaw_rl.shared.engine.protocol import Engine
from openclaw_rl.shared.errors import Conflict, EngineError, NotFound
from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.records import PolicyVersion

log = logging.getLogger(__name__)


class ServedVersions:
    """Loads a version into the engine before a request asks for it, and makes another one live.

    Candidates that the guard is probing, and those that it rejected, are not served, though the engine may hold them.
    """

    def __init__(self, engine: Engine, watch: EngineWatch, journal: AsyncJournal, names: ModelNames) -> None:
        self._engine = engine
        self._watch = watch
        self._journal = journal
        self._names = names
        self._served = {0}

    async def require(self, number: int) -> None:
        """Serve a version next to the live one. Raises `NotFound`, or `EngineError` while the engine is away."""
        if self._knows(number) and number in self._served:
            return
        await self._watch.refresh()
        version = await self._journal.version(number)
        state = version.state if version is not None else ""
        if self._knows(number) and state != "rejected" and (state or self._lives(number)):
            if state in ("live", "retired"):
                self._served.add(number)  # it will never be rejected
            return
        if version is None or state == "rejected" or not version.checkpoint:
            raise self._names.unknown(self._names.served(number))
        if self._watch.info is None:
            raise EngineError(self._watch.error)
        folder = _folder(version)
        try:
            await self._engine.load(number, str(folder), live=False)
        except EngineError as error:
            log.warning("version %d cannot be loaded from %s: %s", number, folder, error)
            raise self._names.unknown(self._names.served(number)) from error
        await self._watch.refresh()

    async def promote(self, number: int, *, release: bool = False, pin: bool = False) -> dict[str, Any]:
        """Make version `number` serve new requests; the learner continues from it. With `release` the samples are ready
        again that only the line that is left has learned from; with `pin` it stays live until `unpin`. Returns the
        versions that are live now and before, the pinned one, how many samples were released, and how many turns such
        lines hold still.

        The journal decides, so an engine that is away loads it when it is back. Raises `NotFound` for an unknown
        version, `Conflict` for one that is rejected, not published yet, without files, or cannot be loaded, and while
        another one is pinned.
        """
        versions = {version.number: version for version in await self._journal.versions()}
        version = versions.get(number)
        if version is None:
            raise NotFound(f"There is no version {number}. {_availability(versions)}", code="version_not_found")
        if version.state == "rejected":
            reason = version.guard.get("reason") or "the guard's report names no reason"
            raise Conflict(f"Version {number} was rejected and never serves: {reason}. {_availability(versions)}")
        if version.state == "candidate":
            raise Conflict(f"Version {number} is about to be published; ask again. {_availability(versions)}")
        if not available(version):
            raise Conflict(
                f"The files of version {number} are gone (keep_checkpoints). {_availability(versions)}", code="pruned"
            )
        if version.checkpoint and (fault := await asyncio.to_thread(damage, Path(version.checkpoint))):
            raise Conflict(f"Version {number} is damaged: {fault}. {_availability(versions)}", code="damaged")
        before = next((one.number for one in versions.values() if one.state == "live"), None)
        await self._watch.refresh()
        info = self._watch.info
        path = str(_folder(version)) if number else (info.model_path if info is not None else "")
        if info is not None and info.several_versions:
            await self._load(version, path, live=False)
        if refused := await self._journal.promote(number, pin=pin):
            raise Conflict(f"Version {number} cannot be made live: {refused}. {_availability(versions)}")
        left = before if before != number else max(versions)
        released = await self._journal.release(left) if release and left is not None else 0
        engine = self._watch.error
        if info is not None:
            try:
                await self._load(version, path, live=True)
                engine = "serves it"
            except EngineError as error:
                if error.status != 503:
                    raise
                engine = str(error)  # the process that may change it follows the journal
            await self._watch.refresh()
        log.info("version %d is live instead of version %s, on request", number, before)
        held = (await self._journal.accounting())["rolled_back"]
        return {
            "live": number,
            "before": before,
            "pinned": await self._journal.pinned(),
            "engine": engine,
            "released": released,
            "rolled_back": held,
        }

    async def names(self) -> list[str]:
        """The model names that clients can ask for now, without aliases."""
        info = self._watch.info
        numbers = sorted(info.versions) if info is not None else []
        if set(numbers) <= self._served:
            return [self._names.own, *map(self._names.served, numbers)]
        states = {version.number: version.state for version in await self._journal.versions(samples=False)}
        shown = [one for one in numbers if self._lives(one) or states.get(one, "rejected") != "rejected"]
        return [self._names.own, *map(self._names.served, shown)]

    async def _load(self, version: PolicyVersion, path: str, *, live: bool) -> None:
        try:
            await self._engine.load(version.number, path, live=live)
        except EngineError as error:
            if error.status != 400:
                raise
            raise Conflict(f"Version {version.number} cannot be loaded: {error}") from error

    def _knows(self, number: int) -> bool:
        info = self._watch.info
        return info is not None and number in info.versions

    def _lives(self, number: int) -> bool:
        """True if the engine serves it by itself, with or without the journal; version 0 always counts."""
        info = self._watch.info
        return number == 0 or (info is not None and number == info.live)


def available(version: PolicyVersion) -> bool:
    """True if a version can be made live: it passed the guard and its files are there."""
    if version.state not in ("live", "retired"):
        return False
    return version.number == 0 or _folder(version).is_dir()


def _folder(version: PolicyVersion) -> Path:
    return Path(version.checkpoint) / SERVED


def _availability(versions: Mapping[int, PolicyVersion]) -> str:
    numbers = ", ".join(str(number) for number, version in sorted(versions.items()) if available(version))
    return f"Available: {numbers}." if numbers else "None is available yet: the learner has not run."
