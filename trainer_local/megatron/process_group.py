"""The processes that train together, as each of them sees it: its rank, its collectives, and one error for all.

Ranks of one model are neighbors: rank = data-parallel rank · tensor_parallel + tensor-parallel rank. Tensors go by NCCL
on CUDA and by gloo on a CPU, objects by gloo. Outside the passes through a model all ranks meet in `exchange`, which
carries errors: a rank that failed skips to the end of its command and exchanges its error there, whatever exchange the
others are at. The command then fails on every rank, and every rank undoes it.
"""

from __future__ import annotations

import atexit
import functools
import gc
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from openclaw_rl.shared.errors import TrainerError, TrainerOutOfMemory
from openclaw_rl.trainer_local.megatron import hang
from openclaw_rl.trainer_local.megatron.launch import under_torchrun

log = logging.getLogger("megatron")

START = timedelta(minutes=10)
"""Time for all processes to start and find each other."""
FOREVER = timedelta(days=3650)
"""Ranks wait for their next command as long as it takes; a rank that died is noticed by its connection. Rank 0 waits
for a time (`hang.TIMEOUT`) for them to take it, as all do for each other within a command.
"""

GRACE_SECONDS = 120.0
"""Time for the others to meet the error of a failed rank. They may be in a pass that it has left; then only the end of
the process helps.
"""

BUCKET = 1 << 24
"""Gradient elements that are reduced at once."""

Value = TypeVar("Value")


class RankFailed(TrainerError):
    """A rank failed, and every rank knows."""


class RankOutOfMemory(RankFailed, TrainerOutOfMemory):
    """A rank ran out of memory, and every rank knows."""


class Failure(NamedTuple):
    """The error of a rank as the others get it: its `reason`, and the fields of `TrainerOutOfMemory` if it is one."""

    reason: str
    out_of_memory: bool = False
    sample_id: str = ""
    tokens: int = 0

    @classmethod
    def from_error(cls, error: Exception) -> Failure:
        """The failure that `error` is."""
        reason = str(error) if isinstance(error, TrainerError) else f"{type(error).__name__}: {error}"
        if isinstance(error, TrainerOutOfMemory):
            return cls(reason, True, error.sample_id, error.tokens)
        return cls(reason)


@functools.cache
def join() -> ProcessGroup:
    """The group of the processes that torchrun started, once all are there; else of this process alone."""
    if not under_torchrun():
        atexit.register(_leave)
        return ProcessGroup(dist.HashStore(), 0, 1, hang.TIMEOUT)  # type: ignore[attr-defined]
    store, rank, size = next(iter(rendezvous("env://", timeout=START)))
    return ProcessGroup(store, rank, size, hang.TIMEOUT)


def _leave() -> None:
    """End the group of one process, or NCCL warns of what it leaves behind."""
    if dist.is_initialized():
        dist.destroy_process_group()


class ProcessGroup:
    """This process among those that train together. All ranks call each method, in the same order."""

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
        """Join the others; returns when all are there. `store` is shared by all of them, and within a command none
        waits longer than `timeout` for another.
        """
        self.rank, self.size = rank, size
        self.tensor_parallel, self.device = 1, torch.device("cpu")
        self._arranged = 0
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        self._timeout = timeout
        self._attendance = hang.Attendance(store, rank, size, timeout)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timeout)
        patience = FOREVER if rank else timeout  # gloo's sender waits until the receiver is there
        self._commands = dist.new_group(backend="gloo", timeout=patience) if size > 1 else None
        self._control = dist.new_group(backend="gloo", timeout=timeout) if size > 1 else None
        store.set_timeout(timeout)

    def arrange(self, tensor_parallel: int, device: torch.device) -> None:
        """Split the ranks into models of `tensor_parallel` ranks each, which compute on `device`."""
        if device.type == "cuda":
            index = int(os.environ.get("LOCAL_RANK", "0")) if self.size > 1 else device.index
            device = torch.device("cuda", torch.cuda.current_device() if index is None else index)
            torch.cuda.set_device(device)
        self.device = device
        if tensor_parallel != self._arranged:
            if self._arranged:
                self._end_groups()
            parallel_state.initialize_model_parallel(
                tensor_model_parallel_size=tensor_parallel,
                distributed_timeout_minutes=self._timeout / timedelta(minutes=1),
            )
            self._arranged = self.tensor_parallel = tensor_parallel
            self.tensor_group = parallel_state.get_tensor_model_parallel_group()
            self.data_group = parallel_state.get_data_parallel_group()
        if device.type == "cuda":
            from megatron.core.tensor_parallel import model_parallel_cuda_manual_seed

            # Nothing draws from these states, but weights on CUDA are made inside one.
            model_parallel_cuda_manual_seed(0)

    def _end_groups(self) -> None:
        """End the groups of the last arrangement: Megatron-core forgets its own, and their threads and connections
        would stay. Those of trainers that are still open end too.
        """
        del self.tensor_group, self.data_group
        known = [group for group in parallel_state._global_process_group_list or () if group is not None]
        parallel_state.destroy_model_parallel()  # ends some of them by itself
        for group in known:
            if group in dist.distributed_c10d._world.pg_map:
                dist.destroy_process_group(group)
        known.clear()
        gc.collect()  # models that were closed refer to them, in circles

    @property
    def tensor_rank(self) -> int:
        """Index of this rank's part of the weights."""
        return self.rank % self.tensor_parallel

    @property
    def data_rank(self) -> int:
        """Index of this rank's part of the batch."""
        return self.rank // self.tensor_parallel

    @property
    def data_parallel(self) -> int:
        """Number of parts of the batch."""
        return self.size // self.tensor_parallel

    def exchange(self, value: Value, failure: Failure | None = None) -> list[Value]:
        """The values of all ranks, in order. Raises `RankFailed` on all of them if one brought a failure."""
        if self._control is None:
            return [value]
        found: list[Any] = [None] * self.size
        self._attendance.enter()
        dist.all_gather_object(found, (failure, value), group=self._control)
        self._attendance.leave()
        failed = {rank: failure for rank, (failure, _) in enumerate(found) if failure is not None}
        if failed:
            raise _joined(failed, self.size)
        return [brought for _, brought in found]

    def gather_batch(self, value: Value) -> list[Value]:
        """One value for each part of the batch, in order; tensors in lists come to the CPU. The first rank of each
        model counts, so that no rounding makes the others continue differently.
        """
        if self.size == 1:
            return [value]
        brought: Any = [part.cpu() for part in value] if isinstance(value, list) else value
        return self.exchange(brought)[:: self.tensor_parallel]

    def broadcast(self, value: Any = None) -> Any:
        """The object that rank 0 passes, however long that takes. A rank that does not take it ends rank 0."""
        box = [value]
        if self._commands is not None:
            try:
                dist.broadcast_object_list(box, src=0, group=self._commands)
            except RuntimeError as error:
                if hang.is_timeout(error):
                    leave(self._attendance.describe(error, commanding=True))
                raise
        return box[0]

    def broadcast_tensor(self, tensor: Tensor | None, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """The tensor that rank 0 passes, on the CPU of all."""
        if self._control is None:
            assert tensor is not None, "rank 0 has it"
            return tensor
        box = torch.empty(tuple(shape), dtype=dtype) if tensor is None else tensor.cpu().contiguous()
        dist.broadcast(box, src=0, group=self._control)
        return box

    def gather_to_first(self, value: Value) -> list[Value] | None:
        """The values of all ranks, in order, on rank 0; elsewhere `None`."""
        if self._control is None:
            return [value]
        found: list[Any] | None = [None] * self.size if self.rank == 0 else None
        dist.gather_object(value, found, dst=0, group=self._control)
        return found

    def scatter(self, values: Sequence[Value] | None) -> Value:
        """This rank's of the values that rank 0 passes, one for each rank."""
        if self._control is None:
            assert values is not None, "rank 0 has them"
            return values[0]
        box: list[Any] = [None]
        dist.scatter_object_list(box, None if values is None else list(values), src=0, group=self._control)
        found: Value = box[0]
        return found

    def gather_parts(self, part: Tensor) -> list[Tensor]:
        """The parts of a weight that the ranks of one model hold, in order."""
        if self.tensor_parallel == 1:
            return [part]
        found = [torch.empty_like(part, device=self.device) for _ in range(self.tensor_parallel)]
        dist.all_gather(found, part.to(self.device).contiguous(), group=self.tensor_group)
        return found

    def all_reduce(self, tensors: Iterable[Tensor], group: Any) -> None:
        """Sum tensors of one type over the ranks of `group`, in place."""
        if group.size() == 1:
            return
        for bucket in _buckets(tensors):
            flat = torch.cat([part.reshape(-1) for part in bucket])
            dist.all_reduce(flat, group=group)
            for part, total in zip(bucket, flat.split([part.numel() for part in bucket]), strict=True):
                part.copy_(total.view_as(part))

    def perform(self, work: Callable[[], Value], leaving: Callable[[Exception], None]) -> Value:
        """Do one command. If it fails on one rank, it fails on all; the rank that failed raises its own error, or what
        all ranks ran out of memory for. `leaving` gets the error if this process has to end because of it. A rank that
        hangs ends this process.
        """
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)  # of this thread
        try:
            return self._perform(work, leaving)
        except Exception as error:
            if hang.is_timeout(error):
                leave(self._attendance.describe(error))
            raise

    def _perform(self, work: Callable[[], Value], leaving: Callable[[Exception], None]) -> Value:
        try:
            found = work()
        except RankFailed:
            raise
        except Exception as error:
            if hang.is_timeout(error):
                raise
            failure = Failure.from_error(error)
            try:
                with self._deadline(failure.reason, functools.partial(leaving, error)):
                    self.exchange(None, failure)
            except RankOutOfMemory as known:
                raise known from error
            except RankFailed:
                pass  # all of them know; `error` itself says more here
            raise
        self.exchange(None)
        return found

    @contextmanager
    def _deadline(self, reason: str, leaving: Callable[[], None]) -> Iterator[None]:
        def give_up() -> None:
            with suppress(Exception):
                leaving()
            leave(f"rank {self.rank} failed, and the others wait for it elsewhere: {reason}")

        timer = threading.Timer(GRACE_SECONDS, give_up)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


def _joined(failed: Mapping[int, Failure], size: int) -> RankFailed:
    """One error for the failures by rank. Out of memory, passes that can be made smaller count first."""
    reasons = "; ".join(f"rank {rank} of {size}: {failure.reason}" for rank, failure in failed.items())
    short = [failure for failure in failed.values() if failure.out_of_memory]
    if not short:
        return RankFailed(reasons)
    passes = [failure.tokens for failure in short if failure.tokens and not failure.sample_id]
    if passes:
        return RankOutOfMemory(reasons, tokens=min(passes))
    return RankOutOfMemory(reasons, sample_id=next((one.sample_id for one in short if one.sample_id), ""))


def _buckets(tensors: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    bucket: list[Tensor] = []
    elements = 0
    for tensor in tensors:
        if bucket and elements + tensor.numel() > BUCKET:
            yield bucket
            bucket, elements = [], 0
        bucket.append(tensor)
        elements += tensor.numel()
    if bucket:
        yield bucket


def is_lost(error: RuntimeError) -> bool:
    """True if a collective failed because another process is gone."""
    return isinstance(error, dist.DistError) or "onnection" in str(error)


def leave(reason: str, after: float = 0.0) -> None:
    """End this process: torchrun's agent ends the others with it, and the supervisor starts all of them again. Nothing
    in here could be cleaned up, since a collective may never return.
    """
    log.critical("%s; this process ends", reason)
    time.sleep(after)
    logging.shutdown()
    os._exit(1)
