"""The processes that train together, as each of them sees it: its rank, what it exchanges with the others, and how one
that fails ends what all are doing.

Ranks of one model lie next to each other: rank = data-parallel rank · tensor_parallel + tensor-parallel rank. Tensors
go by NCCL on CUDA and by gloo on a CPU, objects by gloo. Outside the passes through a model all exchange goes through
`World.exchange`, which brings errors along: a rank that has failed goes to the end of its command and exchanges its
error there, whatever exchange the others are at; it fails for them all, and all undo the same.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from torch import Tensor

from openclaw_rl.shared.errors import TrainerError

log = logging.getLogger("megatron")

FOREVER = timedelta(days=3650)
"""Ranks wait for their next command as long as it takes; that one has died is noticed by its connection."""

GRACE_SECONDS = 120.0
"""How long a rank that has failed waits for the others to hear it. They may be within a pass that it has left, and wait
for it: then nothing but an end of the process helps them.
"""

BUCKET = 1 << 24
"""Numbers of gradients that are added up at a time."""

Value = TypeVar("Value")


class RankFailed(TrainerError):
    """A rank failed, and every rank knows."""


class World:
    """This process among those that train together. All methods are called by all ranks, in the same order."""

    def __init__(self, store: Any, rank: int, size: int, tensor_parallel: int, device: torch.device) -> None:
        """Join the others; returns when all are there. `store` is one that all of them have."""
        self.rank, self.size, self.tensor_parallel, self.device = rank, size, tensor_parallel, device
        self.on_stuck: Callable[[], None] = left
        self._store = store
        if device.type == "cuda":
            torch.cuda.set_device(device)
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=FOREVER)
        parallel_state.initialize_model_parallel(tensor_model_parallel_size=tensor_parallel)
        self._control = dist.new_group(backend="gloo", timeout=FOREVER) if size > 1 else None
        self.tensor_group = parallel_state.get_tensor_model_parallel_group()
        self.data_group = parallel_state.get_data_parallel_group()
        if device.type == "cuda":
            from megatron.core.tensor_parallel import model_parallel_cuda_manual_seed

            # Nothing draws from these states, but weights on CUDA are made inside one.
            model_parallel_cuda_manual_seed(0)

    @property
    def tensor_rank(self) -> int:
        """Which part of the weights is here."""
        return self.rank % self.tensor_parallel

    @property
    def data_rank(self) -> int:
        """Which part of the batch is learned from here."""
        return self.rank // self.tensor_parallel

    @property
    def data_parallel(self) -> int:
        """How many parts of the batch there are."""
        return self.size // self.tensor_parallel

    def exchange(self, value: Value, error: str = "") -> list[Value]:
        """What every rank brought, in order. Raises `RankFailed` on all where one brought an error."""
        if self._control is None:
            return [value]
        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, (error, value), group=self._control)
        failed = [f"rank {rank} of {self.size}: {told}" for rank, (told, _) in enumerate(found) if told]
        if failed:
            raise RankFailed("; ".join(failed))
        return [brought for _, brought in found]

    def gather(self, value: Value) -> list[Value]:
        """What each part of the batch brought, in order; tensors in lists come to the CPU. Of the ranks of one model
        the first is heard, so that no rounding lets them go on differently.
        """
        if self.size == 1:
            return [value]
        brought: Any = [part.cpu() for part in value] if isinstance(value, list) else value
        return self.exchange(brought)[:: self.tensor_parallel]

    def told(self, command: Any = None) -> Any:
        """The command that rank 0 gives; the others wait for it."""
        box = [command]
        if self._control is not None:
            dist.broadcast_object_list(box, src=0, group=self._control)
        return box[0]

    def sent(self, tensor: Tensor | None, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """A tensor that rank 0 has, on the CPU of all."""
        if self._control is None:
            assert tensor is not None, "rank 0 has it"
            return tensor
        box = torch.empty(tuple(shape), dtype=dtype) if tensor is None else tensor.cpu().contiguous()
        dist.broadcast(box, src=0, group=self._control)
        return box

    def collected(self, value: Value) -> list[Value] | None:
        """What every rank has, in order, on rank 0; elsewhere `None`."""
        if self._control is None:
            return [value]
        found: list[Any] | None = [None] * self.size if self.rank == 0 else None
        dist.gather_object(value, found, dst=0, group=self._control)
        return found

    def dealt(self, values: Sequence[Value] | None) -> Value:
        """What rank 0 has for each rank."""
        if self._control is None:
            assert values is not None, "rank 0 has them"
            return values[0]
        box: list[Any] = [None]
        dist.scatter_object_list(box, None if values is None else list(values), src=0, group=self._control)
        found: Value = box[0]
        return found

    def parts(self, part: Tensor) -> list[Tensor]:
        """The parts that the ranks of one model have of a weight, in order."""
        if self.tensor_parallel == 1:
            return [part]
        found = [torch.empty_like(part, device=self.device) for _ in range(self.tensor_parallel)]
        dist.all_gather(found, part.to(self.device).contiguous(), group=self.tensor_group)
        return found

    def add_up(self, tensors: Iterable[Tensor], group: Any) -> None:
        """Add up tensors of one type over the ranks of `group`, in place."""
        if group.size() == 1:
            return
        for bucket in _buckets(tensors):
            flat = torch.cat([part.reshape(-1) for part in bucket])
            dist.all_reduce(flat, group=group)
            for part, total in zip(bucket, flat.split([part.numel() for part in bucket]), strict=True):
                part.copy_(total.view_as(part))

    def perform(self, work: Callable[[], Value]) -> Value:
        """Do one command; what fails fails on all ranks, and is raised on all."""
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)  # of this thread
        try:
            found = work()
        except RankFailed:
            raise
        except Exception as error:
            self._fail(error)
            raise
        self.exchange(None)
        return found

    def _fail(self, error: Exception) -> None:
        if self._control is None:
            return
        told = str(error) if isinstance(error, TrainerError) else f"{type(error).__name__}: {error}"
        key = f"failed/{self.rank}"
        self._store.set(key, told)
        with self._impatient(told):
            try:
                self.exchange(None, told)
            except RankFailed:
                self._store.delete_key(key)

    @contextmanager
    def _impatient(self, told: str) -> Iterator[None]:
        def give_up() -> None:
            log.critical("rank %d failed, and the others cannot hear it: %s", self.rank, told)
            self.on_stuck()

        timer = threading.Timer(GRACE_SECONDS, give_up)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def stop(self, key: str) -> None:
        """Let every rank hear that what knows `key` is to stop."""
        self._store.set(key, "stop")

    def stopped(self, key: str) -> bool:
        """Whether that is so. All ranks of one model call it together, and hear the same."""
        asked = bool(self._store.check([key]))
        if self.tensor_parallel == 1:
            return asked
        flag = torch.tensor([float(asked)], device=self.device)
        dist.all_reduce(flag, op=dist.ReduceOp.MAX, group=self.tensor_group)
        return bool(flag.item())

    def failures(self) -> str:
        """What ranks have told of their failures, for when they are gone; that they lost another one only where none
        has told more.
        """
        found = {}
        for rank in range(self.size):
            key = f"failed/{rank}"
            if self._store.check([key]):
                found[rank] = self._store.get(key).decode()
        first = {rank: told for rank, told in found.items() if "onnection" not in told} or found
        return "; ".join(f"rank {rank}: {told}" for rank, told in first.items())

    def close(self) -> None:
        """Leave the others."""
        parallel_state.destroy_model_parallel()
        dist.destroy_process_group()


def _buckets(tensors: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    bucket: list[Tensor] = []
    held = 0
    for tensor in tensors:
        if bucket and held + tensor.numel() > BUCKET:
            yield bucket
            bucket, held = [], 0
        bucket.append(tensor)
        held += tensor.numel()
    if bucket:
        yield bucket


def left() -> None:
    """End this process at once: what it waits for will not come."""
    logging.shutdown()
    os._exit(1)
