"""Rank 0's side of the processes that train together: it starts the others, gives the commands, and notices who is
gone.

On one machine the others are children of this process. Under torchrun they are there already: `RANK` and `WORLD_SIZE`
are set, rank 0 runs the learner and the others `trainer_local.megatron.worker`. All trainers of a process share them.

A child that dies takes the rest with it: what was being done fails with `RanksLost`, and `restart` begins with fresh
ones; on CUDA it ends this process too, for whoever supervises it to start again. Children end when this process does,
however it ends: they watch a pipe that it holds.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import subprocess
import sys
import threading
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from openclaw_rl.shared.errors import ConfigError, TrainerError
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_local.megatron.process_group import FOREVER, World, left
from openclaw_rl.trainer_local.megatron.rank import Replica, perform
from openclaw_rl.trainer_local.models.weights import choose_device
from openclaw_rl.trainer_local.placement.assignments import read
from openclaw_rl.trainer_local.placement.place import given

log = logging.getLogger("megatron")

START_SECONDS = 600.0
"""For all processes to import what they need and find each other."""
CLOSE_SECONDS = 20.0
STUCK_SECONDS = 30.0
"""How long a command may go on after a rank has died. On CUDA its collectives may never end by themselves."""

TELL_SECONDS = 20.0
"""How long a lost connection waits for the child at its other end to have ended, whose exit code tells more."""

LAYOUT = "layout"
CHILD = "--child"
"""Says that standard input is a pipe of rank 0."""
TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class RanksLost(TrainerError):
    """A process that trains is gone, and with it what it held: a checkpoint must be restored."""


def under_torchrun() -> bool:
    """Whether the processes were started by somebody else."""
    return all(name in os.environ for name in TORCHRUN)


def ready(rank: int) -> str:
    """The key that says that a rank is there."""
    return f"ready/{rank}"


def ranks_for(settings: Settings, device: torch.device) -> int:
    """How many processes train: as many as GPUs that the placement has for it, which are those that are visible; on a
    CPU `actor_gpus`, or one for each part of the model. Raises `ConfigError` where tensor parallelism does not divide
    them.
    """
    parts = settings.tensor_parallel
    named = _named(settings)
    if under_torchrun():
        count, source = int(os.environ["WORLD_SIZE"]), "processes under torchrun"
    elif device.type == "cuda" and device.index is None:
        visible = torch.cuda.device_count()
        count, source = min(named or visible, visible), "GPUs to train on"
    elif device.type == "cuda":
        count, source = 1, f"GPU to train on (device = {device})"
    else:
        count, source = named or parts, "processes to train in (actor_gpus)"
    if count % parts:
        raise ConfigError(f"tensor_parallel = {parts} does not divide the {count} {source}: set it to a divisor")
    return count


def _named(settings: Settings) -> int:
    """How many GPUs train by the placement that this process was started under, else by `actor_gpus`; 0 if neither
    says it.
    """
    placement = given()
    if placement is not None:
        return len(placement.train)
    spec = read(settings.actor_gpus, "actor_gpus")
    return len(spec) if isinstance(spec, tuple) else spec or 0


class Leader:
    """The ranks, as rank 0 leads them. Methods belong to one thread at a time; others wait."""

    def __init__(self, device: torch.device, size: int, tensor_parallel: int) -> None:
        self.layout = (device, size, tensor_parallel)
        self.generation = 0
        """Which ranks these are: trainers made on earlier ones are gone."""
        self._replicas: dict[int, Replica] = {}
        self._numbers = itertools.count()
        self._lock = threading.RLock()
        self._children: list[subprocess.Popen[bytes]] = []
        self._world: World | None = None
        self._lost = ""
        self._ending = False
        self._busy = False
        self._start()

    @property
    def lost(self) -> str:
        """Why the ranks are no longer there; "" while they are."""
        return self._lost

    def open(self, settings: Settings) -> tuple[int, Replica]:
        """A trainer on all ranks: its number, and rank 0's part. Raises `ConfigError` or `TrainerError`."""
        number = next(self._numbers)
        try:
            self.call(number, "open", settings)
        except BaseException:
            self._replicas.pop(number, None)
            raise
        return number, self._replicas[number]

    def call(self, number: int, name: str, *arguments: Any, others: tuple[Any, ...] | None = None) -> Any:
        """Let all ranks do something; what rank 0's part returns. `others` are the arguments of the other ranks where
        rank 0 has more to go by. Raises what failed here, `TrainerError` for what failed elsewhere, `RanksLost` where a
        rank is gone.
        """
        with self._lock:
            if self._world is None or self._lost:
                raise RanksLost(self._lost or "The processes that train have ended")
            self._busy = True
            try:
                self._world.told((number, name, arguments if others is None else others))
                return perform(self._world, self._replicas, (number, name, arguments))
            except RuntimeError as error:
                self._check_lost(error)
                raise
            finally:
                self._busy = False

    def stop(self, key: str) -> None:
        """Tell all ranks that the step that knows `key` is to end (`World.stopped`). May be called while it runs."""
        if self._world is not None and not self._lost:
            self._world.stop(key)

    def release(self, number: int) -> bool:
        """Forget a trainer; whether it was the last, and the ranks have ended."""
        with self._lock:
            if number in self._replicas and not self._lost:
                self.call(number, "close")
            self._replicas.pop(number, None)
            if self._replicas:
                return False
            self._stop()
            return True

    def restart(self) -> None:
        """Begin with fresh ranks where the old ones are lost. Raises `TrainerError`."""
        with self._lock:
            if not self._lost:
                return
            if under_torchrun():
                raise RanksLost(f"{self._lost}; torchrun has to start all processes again")
            if self.layout[0].type == "cuda":
                log.critical("%s: this process ends as well, so that all begin anew", self._lost)
                left()  # what NCCL holds of the others cannot be let go of safely
            self._stop()
            self._start()

    def _start(self) -> None:
        device, size, tensor_parallel = self.layout
        self._lost, self._ending = "", False
        self.generation += 1
        self._replicas.clear()
        if under_torchrun():
            store, _, _ = next(iter(rendezvous("env://", timeout=timedelta(seconds=START_SECONDS))))
        else:
            patience = timedelta(seconds=START_SECONDS)
            store = dist.TCPStore(  # type: ignore[attr-defined]
                "127.0.0.1", 0, size, is_master=True, wait_for_workers=False, timeout=patience
            )
        store.set(LAYOUT, json.dumps([device.type, tensor_parallel, self.generation]))
        if not under_torchrun():
            for rank in range(1, size):
                self._spawn(rank, size, store.port)
        try:
            self._await(store, size)
            store.set_timeout(FOREVER)
            here = torch.device("cuda", _local_rank()) if device.type == "cuda" and size > 1 else device
            if here.type == "cuda" and here.index is None:
                here = torch.device("cuda", torch.cuda.current_device())
            self._world = World(store, 0, size, tensor_parallel, here)
        except BaseException:
            self._end_children()
            raise
        self._world.on_stuck = left if under_torchrun() else self._end_children

    def _spawn(self, rank: int, size: int, port: int) -> None:
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "MASTER_PORT": port}
        child = subprocess.Popen(
            [sys.executable, "-m", "openclaw_rl.trainer_local.megatron.worker", CHILD],
            stdin=subprocess.PIPE,
            env=os.environ | {name: str(value) for name, value in place.items()} | {"MASTER_ADDR": "127.0.0.1"},
        )
        self._children.append(child)
        threading.Thread(target=self._watch, args=(child, rank), name=f"watch-rank-{rank}", daemon=True).start()

    def _await(self, store: Any, size: int) -> None:
        until = time.monotonic() + START_SECONDS
        waiting = [ready(rank) for rank in range(1, size)]
        while waiting and not store.check(waiting):
            if self._lost:
                raise TrainerError(f"{self._lost} before it was ready: the log has its reason")
            if time.monotonic() > until:
                raise TrainerError(f"Not all {size} processes of the trainer were ready in {START_SECONDS:.0f} s")
            time.sleep(0.02)

    def _watch(self, child: subprocess.Popen[bytes], rank: int) -> None:
        code = child.wait()
        if self._ending or child not in self._children:
            return
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        self._lose(f"Rank {rank} of the trainer {how}")
        self._end_children()
        until = time.monotonic() + STUCK_SECONDS
        while self._busy and child in self._children:
            if time.monotonic() > until:
                log.critical("%s, and rank 0 does not get out of what they were doing: it ends as well", self._lost)
                left()
            time.sleep(0.1)

    def _lose(self, reason: str) -> None:
        told = ""
        if self._world is not None:
            told = self._world.failures()
        self._lost = self._lost or (f"{reason} ({told})" if told else reason)

    def _check_lost(self, error: RuntimeError) -> None:
        """Raise `RanksLost` if `error` comes of a rank that is gone, which may be noticed here first."""
        until = time.monotonic() + (TELL_SECONDS if self._children else 0.0)
        while not self._lost and time.monotonic() < until:
            if not _of_connection(error) and all(child.poll() is None for child in self._children):
                return
            time.sleep(0.02)
        if not self._lost and _of_connection(error):
            self._lose(f"A rank of the trainer cannot be reached ({error})")
        if self._lost:
            raise RanksLost(f"{self._lost}; what was being done was not done") from error

    def _end_children(self) -> None:
        for child in self._children:
            if child.poll() is None:
                child.kill()

    def _stop(self) -> None:
        """End the other ranks, and leave the group."""
        self._ending = True
        children, self._children = self._children, []
        if self._world is not None:
            if not self._lost:
                self._world.told(None)
            self._world.close()
            self._world = None
        until = time.monotonic() + CLOSE_SECONDS
        for child in children:
            if self._lost:
                child.kill()
            try:
                child.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            if child.stdin is not None:
                child.stdin.close()


def _of_connection(error: Exception) -> bool:
    """Whether a collective failed because of another process."""
    return isinstance(error, dist.DistError) or "onnection" in str(error)


def _local_rank() -> int:
    return int(os.environ.get("LOCAL_RANK", "0")) if under_torchrun() else 0


_current: list[Leader] = []
_currents = threading.Lock()


def lead(settings: Settings) -> Leader:
    """The ranks that `settings` describe; started if there are none. Raises `ConfigError`, also where this process
    already leads others, and `TrainerError` where they do not start.
    """
    device = choose_device(settings.device)
    layout = (device, ranks_for(settings, device), settings.tensor_parallel)
    with _currents:
        if _current and _current[0].layout != layout:
            raise ConfigError("This process trains with another device, tensor_parallel or actor_gpus already")
        if _current and _current[0].lost:
            _current[0].restart()
        if not _current:
            _current.append(Leader(*layout))
        return _current[0]


def release(leader: Leader, number: int) -> None:
    """Forget a trainer, and the ranks with the last one."""
    with _currents:
        if leader.release(number) and leader in _current:
            _current.remove(leader)
