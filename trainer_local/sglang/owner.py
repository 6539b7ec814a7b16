"""The owner of an SGLang: the only one that changes its weights, or takes its memory.

There is one lock. A change that fails, or whose client is gone, is undone before the lock is released, so that nothing
is ever served by half-changed weights. The controller process owns the SGLang that it started (`controller`); of an
SGLang that somebody else started, each client process has an `Owner`, and they exclude each other by a file in the data
folder. Where one of them was killed in the middle of a change, the next to look (within seconds) undoes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

import msgspec

from openclaw_rl.shared.engine.endpoint import EngineEndpoint
from openclaw_rl.shared.errors import EngineError
from openclaw_rl.trainer_local.sglang.servers import Servers
from openclaw_rl.trainer_local.sglang.versions import Adapters, FullWeights, Held, VersionStore, mark_broken

PATIENCE_SECONDS = 5.0
"""How long a server may be out of reach in the middle of a change."""
_MEMORY_SECONDS = 120.0
_FLUSH_SECONDS = 30.0
_WAIT_SECONDS = 0.2


class VersionOwner(Protocol):
    """What clients ask of an SGLang's owner, in this process or in another one. All raise `EngineError`."""

    async def versions(self) -> Held:
        """What the servers hold now."""
        ...

    async def load(self, version: int, path: str, *, live: bool) -> None:
        """As `Engine.load`; with the path "" a version is looked for in the folder of checkpoints."""
        ...

    def change(self, version: int, path: str) -> AbstractAsyncContextManager[bool]:
        """The block brings full weights, those of the folder `path`, to the paused servers; it gets `False` where they
        are served already.
        """
        ...

    def lend(self, tags: Sequence[str]) -> AbstractAsyncContextManager[bool]:
        """The block has the servers' memory of these kinds (SGLang's tags; none: all of it). It gets `False`, and no
        memory, where they are busy.
        """
        ...

    async def close(self) -> None:
        """Release connections."""
        ...


class Owner:
    """The owner of the SGLang at `url`. `claim` is the file by which several processes exclude each other, `None` where
    this one is alone; `may_import_torch`: to send adapters that SGLang cannot read from disk.
    """

    def __init__(
        self, url: str, store: VersionStore, *, claim: Path | None = None, may_import_torch: bool = False
    ) -> None:
        self._servers = Servers(EngineEndpoint(url, PATIENCE_SECONDS))
        self._store = store
        self._claim = _Claim(claim)
        self._may_import_torch = may_import_torch
        self._lock = asyncio.Lock()
        self._held: Adapters | FullWeights | None = None

    async def versions(self) -> Held:
        """What the servers hold now, after undoing a change that a killed process left."""
        await self._servers.find()
        held = self._held or await self._look()
        if self._claim.unfinished is not None and not self._lock.locked():
            async with self._claim.taken(wait=False) as mine:
                if mine:
                    await self._undo(held)
                    await self._servers.find()
        return await held.read()

    async def load(self, version: int, path: str, *, live: bool) -> None:
        """As `Engine.load`."""
        async with self._exclusive() as held:
            if isinstance(held, Adapters):
                await held.load(version, path, live=live)
            else:
                await held.load(version, path, live=live, record=self._claim)

    @contextlib.asynccontextmanager
    async def change(self, version: int, path: str) -> AsyncIterator[bool]:
        """See `VersionOwner.change`."""
        async with self._exclusive() as held:
            if isinstance(held, Adapters):
                raise EngineError(f"the engine at {self._servers.front.url} serves adapters", status=400)
            async with held.change(version, path, self._claim) as needed:
                yield needed

    @contextlib.asynccontextmanager
    async def lend(self, tags: Sequence[str]) -> AsyncIterator[bool]:
        """Requests that come meanwhile wait at the paused servers. A server whose memory does not come back is marked
        as broken, and left to be started again.
        """
        fields = {"tags": list(tags)} if tags else {}
        released: list[EngineEndpoint] = []

        async def release(server: EngineEndpoint) -> None:
            await server.command("/release_memory_occupation", fields, _MEMORY_SECONDS)
            released.append(server)

        async def take_back(server: EngineEndpoint) -> None:
            try:
                if server in released:  # SGLang ends when it is told to take memory that it has
                    await server.command("/resume_memory_occupation", fields, _MEMORY_SECONDS)
                await server.command("/continue_generation", {})
            except EngineError:
                await mark_broken(server)
                raise

        async with self._exclusive() as held:
            await held.settle()
            if await self._servers.busy():
                yield False
                return
            try:
                idle = await self._pause()
                if idle:
                    await self._servers.each(release)
                yield idle
            finally:
                await self._servers.each(take_back)

    async def _pause(self) -> bool:
        """Hold requests back; whether none is in flight. SGLang ends when it is told to release memory in use."""
        await self._servers.command("/pause_generation", {"mode": "retract"})
        try:
            await self._servers.command("/flush_cache", {}, _FLUSH_SECONDS)
        except EngineError as error:
            if error.status != 400:
                raise
            return False
        return not await self._servers.busy()

    async def close(self) -> None:
        """Release connections, and stop unloading adapters."""
        if self._held is not None:
            await self._held.close()
        self._servers.close()

    @contextlib.asynccontextmanager
    async def _exclusive(self) -> AsyncIterator[Adapters | FullWeights]:
        """Hold the lock, with everything as a change left it that was ended or undone."""
        async with self._lock, self._claim.taken():
            await self._servers.find()
            held = await self._look()
            if self._claim.unfinished is not None:
                await self._undo(held)
            yield held

    async def _undo(self, held: Adapters | FullWeights) -> None:
        before = self._claim.unfinished
        if before is not None and isinstance(held, FullWeights):
            await held.restore(before)
        self._claim.end()

    async def _look(self) -> Adapters | FullWeights:
        """How the servers hold versions: that is decided when SGLang is started."""
        info = await self._servers.all[0].get("/server_info")
        store = self._store
        if not store.base:
            store = msgspec.structs.replace(store, base=str(info["model_path"]))
        kind = Adapters if info.get("enable_lora") else FullWeights
        if self._held is None or not isinstance(self._held, kind):
            if info.get("enable_lora"):
                self._held = Adapters(self._servers, store, may_import_torch=self._may_import_torch)
            else:
                self._held = FullWeights(self._servers, store, info)
        return self._held


class _Claim:
    """Which change is being made, in a file that the processes of one data folder share: whoever has its lock may
    change SGLang, and a version in it is the one to restore. The kernel releases the lock of a killed process.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path

    @property
    def unfinished(self) -> int | None:
        """The version before the change that was not ended, `None` if all were."""
        try:
            text = self._path.read_text() if self._path is not None else ""
        except FileNotFoundError:
            return None
        return int(text) if text.isdigit() else None

    @contextlib.asynccontextmanager
    async def taken(self, *, wait: bool = True) -> AsyncIterator[bool]:
        """The block has the lock; it gets `False`, and has it not, where another process has it and it does not
        `wait`.
        """
        if self._path is None:
            yield True
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            while not _locked(file.fileno()):
                if not wait:
                    yield False
                    return
                await asyncio.sleep(_WAIT_SECONDS)
            yield True

    def begin(self, before: int) -> None:
        """A change from version `before` begins."""
        if self._path is not None:
            self._path.write_text(str(before))

    def end(self) -> None:
        """It is made, or undone."""
        if self._path is not None:
            self._path.write_text("")


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
