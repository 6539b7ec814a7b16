"""How full weights get from a trainer into SGLang's memory.

A trainer hands them over as batches of `(Hugging Face name, tensor)` (`hand_over`); an engine that can (`TakesTensors`)
has one of the senders here carry them: handles to the trainer's own memory where both are on one GPU or both on the
CPU, a broadcast (NCCL between GPUs, gloo between CPUs) otherwise. An engine that cannot reads the checkpoint's folder.
Only processes that train import this.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import json
import logging
import pickle
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor
from torch.distributed import distributed_c10d as c10d

from openclaw_rl.shared.engine.protocol import Engine
from openclaw_rl.shared.errors import EngineError
from openclaw_rl.shared.records import new_id
from openclaw_rl.shared.trainer import Checkpoint
from openclaw_rl.trainer_local.sglang.http import EngineHttp

log = logging.getLogger(__name__)

Batch = Sequence[tuple[str, Tensor]]
Batches = Callable[[], Iterable[Batch]]
"""Makes the batches anew each time: an update that fails is made again in another way."""

BATCH_BYTES = 512 << 20
SEND_SECONDS = 120.0
"""For one batch."""
_CLOSE_SECONDS = 10.0
_LOOPBACKS = ("127.0.0.1", "localhost", "::1")


class SendFailed(Exception):
    """Weights could not be carried over in this way; another may do."""


@runtime_checkable
class TakesTensors(Protocol):
    """An engine client that may take weights from the trainer's memory."""

    async def load_tensors(self, version: int, batches: Batches, path: str) -> None:
        """Make the weights that `batches` brings live as `version`. `path` is a folder with the same ones, for an
        engine that takes none, or where it did not work. Raises `EngineError`; then the version before serves.
        """
        ...


async def hand_over(
    engine: Engine, checkpoint: Checkpoint, version: int, batches: Batches | None, *, live: bool
) -> None:
    """What a trainer's `publish` does: hand over `batches` (full weights that are those of `checkpoint`; `None` if the
    trainer holds others, or trains an adapter), or have the engine load the folder.
    """
    if live and batches is not None and isinstance(engine, TakesTensors):
        await engine.load_tensors(version, batches, checkpoint.served)
    else:
        await engine.load(version, checkpoint.served, live=live)


def batched(named: Iterable[tuple[str, Tensor]], most: int = BATCH_BYTES) -> Iterator[Batch]:
    """Tensors in batches of at most `most` bytes, or one tensor."""
    batch: list[tuple[str, Tensor]] = []
    size = 0
    for name, tensor in named:
        if batch and size + tensor.nbytes > most:
            yield batch
            batch, size = [], 0
        batch.append((name, tensor))
        size += tensor.nbytes
    if batch:
        yield batch


def from_folder(path: str) -> Iterator[Batch]:
    """The weights of a Hugging Face folder."""

    def tensors() -> Iterator[tuple[str, Tensor]]:
        for file in sorted(Path(path).glob("*.safetensors")):
            with safe_open(file, "pt") as opened:
                for name in opened.keys():  # noqa: SIM118 (it is no dictionary)
                    yield name, opened.get_tensor(name)

    return batched(tensors())


class Sender(Protocol):
    """Carries batches to servers that have been told to begin an update."""

    async def open(self) -> None:
        """Get ready, while requests are still answered. Raises `SendFailed`."""
        ...

    async def send(self, batch: Batch) -> None:
        """Carry one batch over. Raises `SendFailed`."""
        ...

    async def close(self) -> None:
        """Let go of what was opened."""
        ...


async def carried(sender: Sender, batches: Batches) -> None:
    """Have `sender` carry all that `batches` makes, which is made in a thread: it may come from disk, or from several
    processes. Raises `SendFailed`.
    """
    try:
        making = iter(batches())
        while (batch := await asyncio.to_thread(next, making, None)) is not None:
            await sender.send(batch)
    except SendFailed:
        raise
    except Exception as error:  # whatever the weights come from has errors of its own
        raise SendFailed(f"the weights could not be handed over: {type(error).__name__}: {error}") from error


class Handles:
    """Handles to memory that the servers can open: CUDA IPC on one machine's GPUs, shared memory on its CPU."""

    def __init__(self, workers: Sequence[EngineHttp], ranks: Sequence[int]) -> None:
        self._workers = workers
        self._ranks = ranks

    async def open(self) -> None:
        """See `Sender.open`."""

    async def send(self, batch: Batch) -> None:
        """See `Sender.send`. The memory is kept until every server has copied from it."""
        flat, tensors = await asyncio.to_thread(_flattened, batch)
        for worker, ranks in zip(self._workers, self._ranks, strict=True):
            # Each rank opens a copy of its own: the handles are counted.
            copies = [_pickled(tensors) for _ in range(ranks)]
            fields = {"serialized_named_tensors": copies, "flush_cache": False}
            try:
                await worker.command("/update_weights_from_tensor", fields, SEND_SECONDS)
            except EngineError as error:
                raise SendFailed(f"SGLang did not take handles to memory: {error}") from error
        if flat.is_cuda:
            del flat, tensors
            torch.cuda.ipc_collect()

    async def close(self) -> None:
        """See `Sender.close`."""


class Broadcast:
    """A process group of this process (rank 0) and every rank of every server."""

    def __init__(self, workers: Sequence[EngineHttp], ranks: Sequence[int], backend: str) -> None:
        self._workers = workers
        self._ranks = ranks
        self._backend = backend
        self._name = ""
        self._group: Any = None

    @property
    def name(self) -> str:
        """What the servers know the group by, "" before it is there."""
        return self._name

    async def open(self) -> None:
        """See `Sender.open`. The group stays for further updates: joining it stops a server for a moment."""
        if self._group is not None:
            return
        host = _address_towards(self._workers[0])
        with socket.socket() as probe:
            probe.bind(("", 0))
            port = probe.getsockname()[1]
        self._name = name = new_id("weights")
        world = 1 + sum(self._ranks)
        joining = asyncio.create_task(asyncio.to_thread(_group, port, world, self._backend, name))
        starts = [1 + sum(self._ranks[:place]) for place in range(len(self._ranks))]
        told = {"master_address": host, "master_port": port, "world_size": world, "group_name": name}
        told |= {"backend": self._backend}
        try:
            asked = [
                worker.command("/init_weights_update_group", told | {"rank_offset": start}, SEND_SECONDS)
                for worker, start in zip(self._workers, starts, strict=True)
            ]
            await asyncio.gather(*asked)
            self._group = await joining
        except (EngineError, RuntimeError, OSError) as error:
            joining.add_done_callback(_ignored)
            raise SendFailed(f"no {self._backend} group with SGLang: {error}") from error

    async def send(self, batch: Batch) -> None:
        """See `Sender.send`."""
        flat, tensors = await asyncio.to_thread(_flattened, batch)
        if self._backend == "nccl" and not flat.is_cuda:
            flat = await asyncio.to_thread(flat.cuda)
        told = {
            "names": [name for name, _ in tensors],
            "dtypes": [str(tensor.dtype).removeprefix("torch.") for _, tensor in tensors],
            "shapes": [list(tensor.shape) for _, tensor in tensors],
            "group_name": self._name,
            "load_format": "flattened_bucket",
            "flush_cache": False,
        }
        sending = asyncio.create_task(asyncio.to_thread(_broadcast, self._group, flat))
        asked = asyncio.gather(
            *(one.command("/update_weights_from_distributed", told, SEND_SECONDS) for one in self._workers)
        )
        try:
            await asked
            await sending
        except (EngineError, RuntimeError) as error:
            sending.add_done_callback(_ignored)  # it ends with its time
            raise SendFailed(f"a {self._backend} broadcast to SGLang failed: {error}") from error

    async def close(self) -> None:
        """See `Sender.close`."""
        group, self._group = self._group, None
        if group is None:
            return
        for worker in self._workers:
            with contextlib.suppress(EngineError):
                await worker.command("/destroy_weights_update_group", {"group_name": self._name})
        ending = asyncio.create_task(asyncio.to_thread(dist.destroy_process_group, group))
        ending.add_done_callback(_ignored)
        await asyncio.wait([ending], timeout=_CLOSE_SECONDS)  # one that failed may hang


def sender(how: str, workers: Sequence[EngineHttp], ranks: Sequence[int]) -> Sender:
    """What carries weights in the way `how` (ipc, nccl, gloo) to servers with so many ranks each."""
    return Handles(workers, ranks) if how == "ipc" else Broadcast(workers, ranks, how)


def in_type_of(batches: Batches, dtype: str) -> Batches:
    """The same batches in the type that an engine computes in, where that is a smaller one: it would round them itself,
    and half as much is sent. `dtype` is what the engine calls it.
    """
    wanted = {"bfloat16": torch.bfloat16, "half": torch.float16, "float16": torch.float16}.get(dtype)
    if wanted is None:
        return batches

    def cast() -> Iterator[Batch]:
        for batch in batches():
            yield [(name, part.to(wanted) if part.dtype == torch.float32 else part) for name, part in batch]

    return cast


def adapter_payload(name: str, path: str, tp_size: int) -> dict[str, Any]:
    """The body of SGLang's `/load_lora_adapter_from_tensors` for a PEFT folder; each rank gets a copy, by value."""
    folder = Path(path)
    tensors = load_file(folder / "adapter_model.safetensors")
    copy = base64.b64encode(pickle.dumps(tensors)).decode()
    config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    return {"lora_name": name, "config_dict": config, "serialized_named_tensors": [copy] * tp_size}


def _flattened(batch: Batch) -> tuple[Tensor, list[tuple[str, Tensor]]]:
    """The batch in one piece of memory, and its tensors as views of that: one handle, or one broadcast. Larger types
    come first, so that each begins at a multiple of its size.
    """
    ordered = sorted(batch, key=lambda named: -named[1].element_size())
    parts = [tensor.detach().contiguous().view(-1).view(torch.uint8) for _, tensor in ordered]
    flat = torch.cat(parts)
    views, start = [], 0
    for (name, tensor), part in zip(ordered, parts, strict=True):
        view = flat[start : start + part.numel()].view(tensor.dtype).view(tensor.shape)
        views.append((name, view))
        start += part.numel()
    return flat, views


def _pickled(tensors: Sequence[tuple[str, Tensor]]) -> str:
    """Handles to the tensors' memory, as SGLang's `MultiprocessingSerializer` reads them.

    A file descriptor as handle would have SGLang connect back to this process, which ends it: a named file instead.
    """
    before = multiprocessing.get_sharing_strategy()
    multiprocessing.set_sharing_strategy("file_system")
    try:
        written = io.BytesIO()
        ForkingPickler(written).dump(list(tensors))
    finally:
        multiprocessing.set_sharing_strategy(before)
    return base64.b64encode(written.getvalue()).decode()


def _group(port: int, world: int, backend: str, name: str) -> Any:
    """Rank 0 of a process group beside the default one, made as SGLang's `init_custom_process_group` makes the rest."""
    limit = timedelta(seconds=SEND_SECONDS)
    store = dist.TCPStore("127.0.0.1", port, world, True, limit, wait_for_workers=False)  # type: ignore[attr-defined]
    own = c10d.PrefixStore(name, store)
    group, _ = c10d._new_process_group_helper(
        *(world, 0, [], c10d.Backend(backend), own),
        group_name=name,  # type: ignore[arg-type]
        timeout=limit,
    )
    c10d._world.pg_group_ranks[group] = {rank: rank for rank in range(world)}
    return group


def _broadcast(group: Any, flat: Tensor) -> None:
    group.broadcast(flat, 0).wait()
    if flat.is_cuda:
        torch.cuda.synchronize(flat.device)


def _address_towards(worker: EngineHttp) -> str:
    """This machine's address as a server sees it."""
    host, port = worker.address
    if host in _LOOPBACKS:
        return "127.0.0.1"
    with socket.create_connection((host, port), 5.0) as connection:
        return str(connection.getsockname()[0])


def _ignored(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()
