"""Full weights from a trainer's memory into SGLang's, by SGLang's own distributed update: NCCL on GPUs, gloo on CPUs.

A trainer hands over batches of `(Hugging Face name, tensor)` (`hand_over`), which rank 0 broadcasts to every rank of
every server. An engine that takes no tensors reads the checkpoint's folder. Only processes that train import this.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import pickle
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
import torch.distributed as dist
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor
from torch.distributed import distributed_c10d as c10d

from openclaw_rl.shared.engine.endpoint import EngineEndpoint
from openclaw_rl.shared.engine.protocol import Engine
from openclaw_rl.shared.errors import EngineError
from openclaw_rl.shared.records import new_id
from openclaw_rl.shared.trainer import Checkpoint

Batch = Sequence[tuple[str, Tensor]]
Batches = Callable[[], Iterable[Batch]]
"""Makes the batches again at each call: a transfer that fails is repeated."""

BATCH_BYTES = 512 << 20
SEND_SECONDS = 120.0
"""For one batch."""
_CLOSE_SECONDS = 10.0
_HALVES = {"bfloat16": torch.bfloat16, "half": torch.float16, "float16": torch.float16}
_LOOPBACKS = ("127.0.0.1", "localhost", "::1")


class SendFailed(Exception):
    """Weights could not be sent; SGLang can still read them from disk."""


@runtime_checkable
class TakesTensors(Protocol):
    """An engine client that may take weights from the trainer's memory."""

    async def load_tensors(self, version: int, batches: Batches, path: str) -> None:
        """Make the weights that `batches` brings live as `version`. `path` is a folder with the same ones, for an
        engine that takes none, or where that failed. Raises `EngineError`; then the version before serves.
        """
        ...


async def hand_over(
    engine: Engine, checkpoint: Checkpoint, version: int, batches: Batches | None, *, live: bool
) -> None:
    """A trainer's `publish`: send `batches` (full weights equal to `checkpoint`; `None` if the trainer holds others, or
    trains an adapter), or have the engine load the folder.
    """
    if live and batches is not None and isinstance(engine, TakesTensors):
        await engine.load_tensors(version, batches, checkpoint.served)
    else:
        await engine.load(version, checkpoint.served, live=live)


def batched(named: Iterable[tuple[str, Tensor]], limit: int = BATCH_BYTES) -> Iterator[Batch]:
    """Tensors in batches of at most `limit` bytes, or one tensor."""
    batch: list[tuple[str, Tensor]] = []
    size = 0
    for name, tensor in named:
        if batch and size + tensor.nbytes > limit:
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


class Broadcast:
    """A process group of this process (rank 0) and every rank of `servers`, `ranks` each."""

    def __init__(self, servers: Sequence[EngineEndpoint], ranks: int, backend: str) -> None:
        self.servers = tuple(servers)
        self._ranks = ranks
        self._backend = backend
        self._name = ""
        self._group: Any = None

    async def open(self) -> None:
        """Form the group, while requests are still answered; it stays for further updates, since joining it stops a
        server for a moment. Raises `SendFailed`.
        """
        if self._group is not None:
            return
        with socket.socket() as probe:
            probe.bind(("", 0))
            port = probe.getsockname()[1]
        self._name = name = new_id("weights")
        world = 1 + self._ranks * len(self.servers)
        joining = asyncio.create_task(asyncio.to_thread(_form_group, port, world, self._backend, name))
        fields = {"master_address": _address_towards(self.servers[0]), "master_port": port, "world_size": world}
        fields |= {"group_name": name, "backend": self._backend}
        try:
            await asyncio.gather(
                *(
                    server.command(
                        "/init_weights_update_group", fields | {"rank_offset": 1 + place * self._ranks}, SEND_SECONDS
                    )
                    for place, server in enumerate(self.servers)
                )
            )
            self._group = await joining
        except (EngineError, RuntimeError, OSError) as error:
            joining.add_done_callback(_ignore)
            raise SendFailed(f"no {self._backend} group with SGLang: {error}") from error

    async def send_all(self, batches: Batches) -> None:
        """Send everything that `batches` makes, in a thread: it may come from disk, or from several processes. Raises
        `SendFailed`.
        """
        try:
            making = iter(batches())
            while (batch := await asyncio.to_thread(next, making, None)) is not None:
                await self._send(batch)
        except SendFailed:
            raise
        except Exception as error:  # the source of the weights has errors of its own
            raise SendFailed(f"the weights could not be handed over: {type(error).__name__}: {error}") from error

    async def close(self) -> None:
        """Leave the group."""
        group, self._group = self._group, None
        if group is None:
            return
        for server in self.servers:
            with contextlib.suppress(EngineError):
                await server.command("/destroy_weights_update_group", {"group_name": self._name})
        ending = asyncio.create_task(asyncio.to_thread(dist.destroy_process_group, group))
        ending.add_done_callback(_ignore)
        await asyncio.wait([ending], timeout=_CLOSE_SECONDS)  # one that failed may hang

    async def _send(self, batch: Batch) -> None:
        flat, tensors = await asyncio.to_thread(_flatten, batch)
        if self._backend == "nccl" and not flat.is_cuda:
            flat = await asyncio.to_thread(flat.cuda)
        fields = {
            "names": [name for name, _ in tensors],
            "dtypes": [str(tensor.dtype).removeprefix("torch.") for _, tensor in tensors],
            "shapes": [list(tensor.shape) for _, tensor in tensors],
            "group_name": self._name,
            "load_format": "flattened_bucket",
            "flush_cache": False,
        }
        sending = asyncio.create_task(asyncio.to_thread(_broadcast, self._group, flat))
        receiving = asyncio.gather(
            *(one.command("/update_weights_from_distributed", fields, SEND_SECONDS) for one in self.servers)
        )
        try:
            await receiving
            await sending
        except (EngineError, RuntimeError) as error:
            sending.add_done_callback(_ignore)  # it ends when its time is over
            raise SendFailed(f"a {self._backend} broadcast to SGLang failed: {error}") from error


def in_type_of(batches: Batches, dtype: str) -> Batches:
    """The same batches in the type that an engine computes in, where that is a smaller one: it would round them itself,
    and half as much is sent. `dtype` is the engine's name of it.
    """
    if dtype not in _HALVES:
        return batches

    def cast() -> Iterator[Batch]:
        for batch in batches():
            yield [(name, _rounded(part, dtype)) for name, part in batch]

    return cast


def adapter_payload(name: str, path: str, tp_size: int, dtype: str) -> dict[str, Any]:
    """The body of SGLang's `/load_lora_adapter_from_tensors` for a PEFT folder, in the type `dtype` of its buffers for
    adapters. SGLang (0.5.23) takes a copy of the whole adapter for each of its `tp_size` ranks, by value.
    """
    folder = Path(path)
    tensors = {key: _rounded(part, dtype) for key, part in load_file(folder / "adapter_model.safetensors").items()}
    copy = base64.b64encode(pickle.dumps(tensors)).decode()
    config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    return {"lora_name": name, "config_dict": config, "serialized_named_tensors": [copy] * tp_size}


def _rounded(part: Tensor, dtype: str) -> Tensor:
    return part.to(_HALVES[dtype]) if dtype in _HALVES and part.dtype == torch.float32 else part


def _flatten(batch: Batch) -> tuple[Tensor, list[tuple[str, Tensor]]]:
    """The batch in one piece of memory, for one broadcast, and its tensors as views of that. Larger types come first,
    so that each begins at a multiple of its size.
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


def _form_group(port: int, world: int, backend: str, name: str) -> Any:
    """Rank 0 of a process group next to the default one; SGLang's `init_custom_process_group` makes the others."""
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


def _address_towards(server: EngineEndpoint) -> str:
    """This machine's address as a server sees it."""
    host, port = server.address
    if host in _LOOPBACKS:
        return "127.0.0.1"
    with socket.create_connection((host, port), 5.0) as connection:
        return str(connection.getsockname()[0])


def _ignore(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()
