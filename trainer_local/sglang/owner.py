"""The owner of an SGLang: the only process that changes its weights, or takes its memory.

The controller owns the SGLang that it started; one that the user started is owned by the learner. Every change is
made under one lock, and one that fails is undone before the lock is released: nothing is ever served by half-changed
weights. What an owner that was killed left undone, the next one undoes (`recover`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec

from openclaw_rl.shared.engine.endpoint import EngineEndpoint
from openclaw_rl.shared.errors import EngineError
from openclaw_rl.trainer_local.sglang.servers import Servers
from openclaw_rl.trainer_local.sglang.versions import Adapters, FullWeights, VersionStore, mark_broken

PATIENCE_SECONDS = 5.0
"""Seconds that a server may be out of reach in the middle of a change."""
LENT = {"tags": ["kv_cache", "weights"]}
READ_SECONDS = 1.0
"""Seconds after a pause for requests that SGLang was reading when it came."""
_MEMORY_SECONDS = 120.0
_FLUSH_SECONDS = 30.0


class Owner:
    """The owner of the SGLang at `url`, whose versions are in `store`; `may_import_torch`: to send adapters that SGLang
    cannot read from disk. Methods raise `EngineError`.
    """

    def __init__(self, url: str, store: VersionStore, *, may_import_torch: bool = False) -> None:
        self._servers = Servers(EngineEndpoint(url, PATIENCE_SECONDS))
        self._store = store
        self._may_import_torch = may_import_torch
        self._lock = asyncio.Lock()
        self._versions: Adapters | FullWeights | None = None

    async def load(self, version: int, path: str, *, live: bool) -> None:
        """As `Engine.load`; with the path "" the version is looked for in the store."""
        async with self._exclusive() as versions:
            await versions.load(version, path, live=live)

    @contextlib.asynccontextmanager
    async def change(self, version: int, path: str) -> AsyncIterator[bool]:
        """The block brings full weights, those of the folder `path`, to the paused servers; it gets `False` where they
        are served already.
        """
        async with self._exclusive() as versions:
            if isinstance(versions, Adapters):
                raise EngineError(f"the engine at {self._servers.front.url} serves adapters", status=400)
            async with versions.change(version, path) as needed:
                yield needed

    @contextlib.asynccontextmanager
    async def lend(self) -> AsyncIterator[bool]:
        """The block has the memory of the servers' weights and KV caches, and requests that come meanwhile wait. It
        gets `False`, and no memory, where the servers are busy. A server whose memory does not come back is marked as
        broken, and left to be started again.

        SGLang (0.5.23) ends where it is not idle at the release. A pause holds requests back before its scheduler.
        Requests that were being read then (images, long prompts) have `READ_SECONDS` to reach it; the flush after that
        finds them, in the queue for grammars too, and nothing is lent. Only one that takes longer to be read, and whose
        grammar is not compiled, and that comes in the milliseconds between flush and release, still ends SGLang. It is
        started again then, and the request fails.
        """
        released: list[EngineEndpoint] = []

        async def release(server: EngineEndpoint) -> None:
            await server.command("/release_memory_occupation", LENT, _MEMORY_SECONDS)
            released.append(server)

        async def take_back(server: EngineEndpoint) -> None:
            try:
                if server in released:  # SGLang ends if it is to take memory that it has
                    await server.command("/resume_memory_occupation", LENT, _MEMORY_SECONDS)
                await server.command("/continue_generation", {})
            except EngineError:
                await mark_broken(server)
                raise

        async with self._exclusive() as versions:
            if isinstance(versions, Adapters):
                await versions.settle()
            if await self._servers.busy() or not await self._flush():
                yield False
                return
            try:
                await self._servers.command("/pause_generation", {"mode": "retract"})
                await asyncio.sleep(READ_SECONDS)
                idle = await self._flush()
                if idle:
                    await self._servers.each(release)
                yield idle
            finally:
                await self._servers.each(take_back)

    async def recover(self) -> None:
        """Undo what an owner left undone that was killed."""
        async with self._exclusive() as versions:
            if isinstance(versions, FullWeights):
                await versions.recover()

    async def close(self) -> None:
        """Release connections, and stop unloading adapters."""
        if isinstance(self._versions, Adapters):
            await self._versions.close()
        self._servers.close()

    async def _flush(self) -> bool:
        """Empty the servers' caches; returns whether they did, which they do only if nothing is in flight. SGLang ends
        if it has to release memory in use, and the load that it reports may be some tokens old.
        """
        try:
            await self._servers.command("/flush_cache", {}, _FLUSH_SECONDS)
        except EngineError as error:
            if error.status != 400:
                raise
            return False
        return True

    @contextlib.asynccontextmanager
    async def _exclusive(self) -> AsyncIterator[Adapters | FullWeights]:
        """Hold the lock; how the servers hold versions, which is decided when SGLang is started."""
        async with self._lock:
            await self._servers.find()
            info = await self._servers.all[0].get("/server_info")
            store = self._store
            if not store.base:
                store = msgspec.structs.replace(store, base=str(info["model_path"]))
            if not info.get("enable_lora"):
                self._versions = FullWeights(self._servers, store, info)
            elif not isinstance(self._versions, Adapters):
                self._versions = Adapters(self._servers, store, may_import_torch=self._may_import_torch)
            yield self._versions
