"""The one set of weights of a plain SGLang without adapters, changed while chat goes on.

A change holds the requests under way (`retract`: their KV is thrown away and computed again), empties the cache, and
lets them go on with the new weights: what is answered says from which token on (`weight_versions`). While it lasts the
`weight_version` says so and who makes it, which keeps others from beginning one; `sglang_rescue` stands by. Of two that
begin at the same moment the one that wrote last has it (Fischer's mutual exclusion): a server knows no locks.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openclaw_rl.shared.errors import EngineError
from openclaw_rl.trainer_local.models.folder import dtype, problem, quantization
from openclaw_rl.trainer_local.sglang.labels import (
    BASE,
    BROKEN,
    UNTOUCHED,
    gone,
    lent_to,
    me,
    number,
    updated_by,
    updating,
    whole_label,
)
from openclaw_rl.trainer_local.sglang.rescue import Rescue, ended_session, mended
from openclaw_rl.trainer_local.sglang.workers import Workers, label_of, relabel

if TYPE_CHECKING:
    from openclaw_rl.trainer_local.sglang.weight_transfer import Batches, Sender

log = logging.getLogger(__name__)

LOAD_SECONDS = 600.0
MOST_FAILURES = 2
"""Changes in a row that a way may fail in before it is given up for the disk: once may be a server that was restarted.
"""
CLAIM_SECONDS = 1.0
"""How long a claim has to stand: longer than it takes another process to see a server free and write its own."""
_FLUSH_SECONDS = 30.0
_WAIT_SECONDS = 0.2


class Whole:
    """See `sglang_held.Held`. `server` is the `/server_info` of a server, `how` the way that weights go (disk, ipc,
    nccl, gloo)."""

    beside = False

    def __init__(
        self, workers: Workers, server: Mapping[str, Any], base: str, checkpoints: Path | None, how: str
    ) -> None:
        self._workers = workers
        self._server = server
        self._base = base
        self._checkpoints = checkpoints
        self._how = how
        self._sender: Sender | None = None
        self._carries: Sequence[str] = ()
        self._failures = 0
        self.trouble = ""

    @property
    def transfer(self) -> str:
        """See `sglang_held.Held.transfer`."""
        return self._how

    async def told(self) -> tuple[int, Sequence[int]]:
        """See `sglang_held.Held.told`."""
        labels = await self._workers.labels()
        broken = [label for label in labels if label == BROKEN or gone(updated_by(label))]
        self.trouble = "a change of weights broke off, and the old ones could not be read again" if broken else ""
        if broken or set(labels) != {labels[0]}:
            return -1, []
        live = number(labels[0])
        return live, [live]

    async def address(self, request: dict[str, Any], version: int | None) -> int | None:
        """See `sglang_held.Held.address`."""
        label = await self._workers.label()
        if version is not None and version != number(label):
            raise EngineError(
                f"the engine at {self._workers.front.url} serves its live version only, not {version}", status=404
            )
        return None

    def doubt(self) -> None:
        """See `sglang_held.Held.doubt`."""
        self._workers.know("")

    async def load(self, version: int, path: str, *, live: bool) -> None:
        """See `shared.engine.protocol.Engine.load`."""
        if not live:
            raise EngineError(
                f"the engine at {self._workers.front.url} holds one version: it cannot load {version} beside it",
                status=400,
            )
        path = path or (self._base if version == 0 else "")
        failed = f"the engine at {self._workers.front.url} did not load {path} as version {version}"
        await self._check(failed, path)
        try:
            if (rescue := await self._begun(version, path)) is None:
                return
            async with self._changing(rescue, version, path):
                fields = {"model_path": path, "flush_cache": True}
                await self._workers.every("/update_weights_from_disk", fields, LOAD_SECONDS)
        except EngineError as error:
            raise EngineError(f"{failed}: {error}", status=error.status) from error

    async def load_tensors(self, version: int, batches: Batches, path: str) -> None:
        """See `weight_transfer.TakesTensors.load_tensors`."""
        failed = f"the engine at {self._workers.front.url} did not take the weights of version {version}"
        await self._check(failed, path)
        if self._how == "disk":
            return await self.load(version, path, live=True)
        await self._free()
        if await self._serves(version, path):
            return None
        from openclaw_rl.trainer_local.sglang.weight_transfer import SendFailed, carried, in_type_of

        try:
            sender = await self._opened()
            if (rescue := await self._begun(version, path)) is None:
                return None
            async with self._changing(rescue, version, path):
                await carried(sender, in_type_of(batches, self._dtype()))
            self._failures = 0
        except SendFailed as error:
            self._failures += 1
            again = self._failures < MOST_FAILURES
            log.warning("%s by %s: %s; from disk %s", failed, self._how, error, "now" if again else "from now on")
            await self._let_go()
            self._how = self._how if again else "disk"
            await self.load(version, path, live=True)
        except EngineError as error:
            raise EngineError(f"{failed}: {error}", status=error.status) from error

    async def close(self) -> None:
        """See `sglang_held.Held.close`."""
        await self._let_go()

    async def _begun(self, version: int, path: str) -> Rescue | None:
        """Be the one who changes the weights to `version`, with a rescue that stands by; `None` where these very
        weights are served already: another process made them live, say.
        """
        workers = self._workers
        while True:
            before = await self._free()
            if await self._serves(version, path):
                return None
            by = me()
            rescue = Rescue(
                [worker.url for worker in workers.all], by, before, self._folder(before), whole_label(version, path)
            )
            await rescue.stand_by()
            try:
                if await self._claimed(version, before, by):
                    return rescue
            except BaseException:
                rescue.leave()
                raise
            await rescue.dismiss()

    async def _claimed(self, version: int, before: int, by: str) -> bool:
        """Write `by` where all see it; whether nobody else did after. What the first server says decides."""
        workers = self._workers.all
        label = await label_of(workers[0])
        if lent_to(label) or updated_by(label) or max(0, number(label)) != before:
            return False
        mine = updating(version, before, by)
        await self._label(mine)
        await asyncio.sleep(CLAIM_SECONDS)
        labels = await asyncio.gather(*map(label_of, workers))
        if labels[0] != mine:
            return False
        if set(labels) != {mine}:
            await self._label(mine)
        return True

    @contextlib.asynccontextmanager
    async def _changing(self, rescue: Rescue, version: int, path: str) -> AsyncIterator[None]:
        """The block changes the weights to `version`, which are those of the folder `path`, with nothing running. When
        it fails the old ones serve again.
        """
        workers = self._workers
        try:
            await workers.every("/pause_generation", {"mode": "retract"})
            await workers.every("/flush_cache", {}, _FLUSH_SECONDS)
            await asyncio.gather(*map(ended_session, workers.all))
            await workers.every("/begin_weight_update", {}, LOAD_SECONDS)
            yield
            await workers.every("/end_weight_update", {}, LOAD_SECONDS)
            await self._label(whole_label(version, path))
            await workers.every("/continue_generation", {})
        except Exception as error:
            self._workers.know("")
            if not await rescue.mend():
                log.error("the weights before version %d cannot be brought back after: %s", version, error)
            raise
        except BaseException:  # this process is ending
            rescue.leave()
            raise
        await rescue.dismiss()

    async def _serves(self, version: int, path: str) -> bool:
        """Whether these very weights are served already."""
        labels = {BASE if label == UNTOUCHED else label for label in await self._workers.labels()}
        return labels == {whole_label(version, path)}

    async def _free(self) -> int:
        """Wait until nobody else changes the weights; the version that they are, 0 where that is unknown."""
        give_up = time.monotonic() + LOAD_SECONDS
        while True:
            await self._workers.label()
            labels = await self._workers.labels()
            by = next(filter(None, map(updated_by, labels)), "")
            if not by:
                return max(0, number(labels[0]))
            if gone(by) or time.monotonic() > give_up:
                before = next(number(label) for label in labels if updated_by(label))
                await mended([worker.url for worker in self._workers.all], by, before, self._folder(before))
                return before
            await asyncio.sleep(_WAIT_SECONDS)

    async def _label(self, label: str) -> None:
        await self._workers.every("/update_weight_version", relabel(label))
        self._workers.know(label)

    def _dtype(self) -> str:
        """What the servers compute in."""
        told = str(self._server.get("dtype"))
        return dtype(self._base) if told == "auto" else told

    def _folder(self, version: int) -> str:
        """Where a version's weights are on disk, "" if that is not known."""
        if version == 0:
            return self._base
        folder = self._checkpoints / str(version) / "served" if self._checkpoints else None
        return str(folder) if folder is not None and folder.is_dir() else ""

    async def _check(self, failed: str, path: str) -> None:
        """Refuse what SGLang could not take, before anything is held: weights that do not fit end its process."""
        quantized = self._server.get("quantization") or await asyncio.to_thread(quantization, self._base)
        if quantized:
            raise EngineError(
                f"{failed}: it serves them quantized ({quantized}), and new ones would have to be quantized again; "
                "train a LoRA instead (lora = true), whose adapters such a base takes",
                status=400,
            )
        if wrong := await asyncio.to_thread(problem, path, self._base):
            raise EngineError(f"{failed}: {wrong}", status=400)

    async def _opened(self) -> Sender:
        """What carries tensors there, ready to do so."""
        urls = [worker.url for worker in self._workers.all]
        if self._sender is None or self._carries != urls:
            from openclaw_rl.trainer_local.sglang.weight_transfer import sender

            await self._let_go()
            ranks = [int(self._server.get("tp_size") or 1)] * len(urls)
            self._sender, self._carries = sender(self._how, self._workers.all, ranks), urls
        await self._sender.open()
        return self._sender

    async def _let_go(self) -> None:
        if self._sender is not None:
            sender, self._sender = self._sender, None
            await sender.close()


def chosen(setting: str, server: Mapping[str, Any], *, colocated: bool) -> str:
    """How weights go to a server, where the setting `weight_transfer` leaves it open: gloo between CPUs, handles to the
    same GPU's memory, NCCL between GPUs.
    """
    if setting != "auto":
        return setting
    if server.get("device") == "cpu":
        return "gloo"
    return "ipc" if colocated else "nccl"
