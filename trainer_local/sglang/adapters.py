"""Versions of a LoRA policy on a plain SGLang: each is an adapter of its own, 0 is the base without one.

An adapter is called `policy-vN-DIGEST`, after the version and what is in it: a checkpoint that was written anew under
the same number is another adapter, and never taken for the one before. Which of them is live is the servers'
`weight_version` (see `sglang_workers`). SGLang keeps what requests under way need: loading does not disturb them, and
unloading waits for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from openclaw_rl.shared.errors import EngineError
from openclaw_rl.trainer_local.backend import adapter_folder
from openclaw_rl.trainer_local.sglang.http import EngineHttp
from openclaw_rl.trainer_local.sglang.labels import BASE, CONFIG, WEIGHTS, adapter_name, version_of
from openclaw_rl.trainer_local.sglang.workers import Workers, relabel

log = logging.getLogger(__name__)

LOAD_SECONDS = 600.0
_PAUSE = 0.2


class Adapters:
    """The versions of `base` on `workers`; of what is not in memory, version N is looked for in `checkpoints/N/served`.

    `most` adapters are kept in memory: the live one, and those that were used last.
    """

    beside = True
    transfer = "adapter"
    trouble = ""

    def __init__(self, workers: Workers, base: str, checkpoints: Path | None, most: int) -> None:
        self._workers = workers
        self._base = base
        self._checkpoints = checkpoints
        self._most = most
        self._names: dict[int, str] = {}
        self._loaded: set[str] = set()
        self._tidying: asyncio.Task[None] | None = None

    async def told(self) -> tuple[int, Sequence[int]]:
        """The live version, −1 where the servers do not agree on it or lack it, and all in memory."""
        labels = await self._workers.labels()
        await self._see()
        live = version_of(labels[0]) or 0
        if set(labels) != {labels[0]} or (live and labels[0] not in self._loaded):
            live = -1
        return live, sorted({0, *self._names})

    async def address(self, request: dict[str, Any], version: int | None) -> int | None:
        """Say in `request` which version is wanted (`None`: the live one); returns its number. Loads it if it is only
        on disk.
        """
        request.pop("lora_path", None)
        label = await self._workers.label()
        number = version_of(label) or 0 if version is None else version
        if number == 0:
            return 0
        name = label if version is None else self._names.get(number, "")
        if name not in self._loaded:
            await self._see()
            if name not in self._loaded:
                name = self._names.get(number) or await self._fetch(number)
        request["lora_path"] = name
        return number

    def doubt(self) -> None:
        """The servers lack an adapter that they were believed to have: ask again before the next request."""
        self._workers.know("")
        self._names.clear()
        self._loaded.clear()

    async def load(self, version: int, path: str, *, live: bool) -> None:
        """See `shared.engine.protocol.Engine.load`."""
        await self._workers.label()
        if version == 0:
            if path not in ("", self._base):
                raise EngineError(
                    f"the engine at {self._workers.front.url} did not load {path} as version 0: that is the base, "
                    f"{self._base}",
                    status=400,
                )
            name = BASE
        else:
            name = await self._load(version, path)
        if live:
            self._workers.know("")  # memory may be lent since: what says so must not be written over
            await self._workers.label()
            await self._workers.every("/update_weight_version", relabel(name))
            self._workers.know(name)
        if version:
            self._tidy_up(name)

    async def close(self) -> None:
        """End what is being unloaded."""
        if self._tidying is not None:
            self._tidying.cancel()
            await asyncio.gather(self._tidying, return_exceptions=True)

    async def _fetch(self, version: int) -> str:
        """Load a version that nobody loaded since the servers started."""
        folder = self._checkpoints / str(version) / "served" if self._checkpoints else None
        if folder is None or not folder.is_dir():
            raise EngineError(
                f"the engine at {self._workers.front.url} has no version {version}, nor has the folder of checkpoints",
                status=404,
            )
        return await self._load(version, str(folder))

    async def _load(self, version: int, path: str) -> str:
        """Have every server load an adapter; its name."""
        failed = f"the engine at {self._workers.front.url} did not load {path} as version {version}"
        folder = Path(path)
        if folder.is_dir() and not ((folder / CONFIG).is_file() and (folder / WEIGHTS).is_file()):
            raise EngineError(f"{failed}: it serves adapters, and the folder holds none ({WEIGHTS})", status=400)
        try:
            name = await asyncio.to_thread(adapter_name, version, path)
        except OSError as error:
            raise EngineError(f"{failed}: {error}", status=400) from error
        own = adapter_folder(path)
        done = await asyncio.gather(
            *(self._loaded_on(worker, name, own) for worker in self._workers.all), return_exceptions=True
        )
        for problem in done:
            if isinstance(problem, EngineError):
                raise EngineError(f"{failed}: {problem}", status=problem.status) from problem
            if isinstance(problem, BaseException):
                raise problem
        self._names[version] = name
        self._loaded.add(name)
        return name

    async def _loaded_on(self, worker: EngineHttp, name: str, path: str) -> None:
        if name in await adapters_of(worker):
            return
        until = time.monotonic() + LOAD_SECONDS
        while True:
            try:
                await worker.command("/load_lora_adapter", {"lora_name": name, "lora_path": path}, LOAD_SECONDS)
            except EngineError as error:
                if (
                    "incomplete unload" in str(error) and time.monotonic() < until
                ):  # it is on its way out; then it can come back
                    await asyncio.sleep(_PAUSE)
                    continue
                if "already" in str(error) or await self._handed_over(worker, name, path):
                    return
                raise
            return

    async def _handed_over(self, worker: EngineHttp, name: str, path: str) -> bool:
        """Whether a server that could not read the folder took the adapter's tensors instead."""
        if "torch" not in sys.modules or not Path(path).is_dir():  # who has no torch so far is not to have it
            return False
        from openclaw_rl.trainer_local.sglang.weight_transfer import adapter_payload

        try:
            tp_size = int((await worker.get("/server_info")).get("tp_size") or 1)
            fields = await asyncio.to_thread(adapter_payload, name, path, tp_size)
            await worker.command("/load_lora_adapter_from_tensors", fields, LOAD_SECONDS)
        except EngineError as error:
            return "already" in str(error)
        except (OSError, ValueError) as error:
            log.warning("%s cannot be handed over: %s", path, error)
            return False
        return True

    async def _see(self) -> None:
        """Learn which adapters every server has."""
        found = await asyncio.gather(*map(adapters_of, self._workers.all))
        names = [name for name in found[0] if all(name in others for others in found)]
        self._names = {number: name for name in names if (number := version_of(name)) is not None}
        self._loaded = set(names)

    def _tidy_up(self, keep: str) -> None:
        if self._tidying is None or self._tidying.done():
            self._tidying = asyncio.create_task(self._tidy(keep))

    async def _tidy(self, keep: str) -> None:
        """Unload what is too much, least recently used first, and adapters that have been replaced."""
        for worker in self._workers.all:
            with contextlib.suppress(EngineError):
                names = [name for name in await adapters_of(worker) if version_of(name) is not None]
                live = str((await worker.get("/model_info")).get("weight_version"))
                spare = [name for name in names if name not in (keep, live)]
                replaced = [name for name in spare if version_of(name) == version_of(keep)]
                rest = [name for name in spare if name not in replaced]
                surplus = len(names) - len(replaced) - self._most
                for name in [*replaced, *rest[: max(0, surplus)]]:
                    await worker.command("/unload_lora_adapter", {"lora_name": name}, LOAD_SECONDS)
                    log.info("unloaded %s from %s", name, worker.url)


async def adapters_of(worker: EngineHttp) -> list[str]:
    """The adapters that a server has, the least recently used first (`LoRARegistry` keeps them so)."""
    listed = (await worker.get("/v1/models"))["data"]
    return [str(one["id"]) for one in listed if one.get("parent")]
