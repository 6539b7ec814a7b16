"""The placement of training and serving on this machine's GPUs.

`trainer_local.placement` computes it once, in the process that starts the others; they read it from their environment.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from openclaw_rl.shared.gpus import ALLOCATOR, ORDER, VISIBLE, Gpu

VARIABLE = "OPENCLAW_PLACEMENT"

ServerRole = Literal["policy", "judge", "hint", "teacher"]

Sharing = Literal["apart", "together", "alternating"]
"""The way training and serving share GPUs: `apart` on different ones; `together` on the same ones, where both fit at
once; `alternating` on the same ones, where a step fits only while SGLang has released its own.
"""


class MemoryPart(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the memory estimate: the bytes that `role` (`trainer`, `policy`, `judge`, `hint`, `teacher`) needs
    for `what` on each of its GPUs.
    """

    role: str
    what: str
    bytes: int
    host: bool = False
    """In the machine's own memory instead of the GPU's."""
    step: bool = False
    """Held only during a training step."""
    tag: Literal["", "weights", "adapters", "kv_cache"] = ""
    """Set for what SGLang counts in `--mem-fraction-static`; its own tag where it can release it."""
    hint: str = ""
    """The change of a setting that makes it smaller, as text."""


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """One SGLang server for the folder or hub name `model`, on `gpus` with `--tp-size` as many."""

    role: ServerRole
    model: str
    gpus: tuple[Gpu, ...]
    memory_fraction: float = 0.0
    """`--mem-fraction-static` on GPUs that are still empty; 0 leaves it to SGLang, as on GPUs of its own. A later start
    needs another: see `trainer_local.placement.memory.fraction_at`.
    """
    static_bytes: int = 0
    """Weights, adapters and KV cache on each GPU: what that fraction stands for."""
    kv_tokens: int = 0
    """Approximate capacity of its KV cache; 0 where that is unknown."""
    lends_memory: bool = False
    """True if it releases KV cache and weights for each step."""


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """GPUs and memory of each role on this machine. Roles that do not run here have no GPUs."""

    trainer: Literal["megatron", "transformers"] = "megatron"
    """Megatron-core trains dense Qwen3 models on any number of GPUs, transformers every other model on one."""
    why_not_megatron: str = ""
    """The reason for transformers; "" with Megatron-core."""
    train: tuple[Gpu, ...] = ()
    """Training GPUs in the order of their local ranks."""
    tensor_parallel: int = 1
    nodes: int = 1
    """Machines that train under torchrun; 1 without it."""
    servers: tuple[Server, ...] = ()
    """The policy's; several are put behind SGLang's router."""
    judges: tuple[Server, ...] = ()
    """The servers of judge, hint model and teacher, where they are separate models served here."""
    sharing: Sharing = "apart"
    """If not `apart`, the servers have to be up before the trainer starts: they measure the free memory."""
    parts: tuple[MemoryPart, ...] = ()
    """The estimate; empty where the model's shape is unknown."""
    notes: tuple[str, ...] = ()
    """Warnings for the user."""
    refusal: str = ""
    """The reason why this placement is impossible, and what would help; "" if it is possible."""

    @property
    def data_parallel(self) -> int:
        """Copies of the model that train, over all nodes."""
        return max(1, self.nodes * len(self.train) // self.tensor_parallel)

    @property
    def trainer_environment(self) -> dict[str, str]:
        """Variables of the trainer's process: it and its children see the training GPUs as 0, 1, …"""
        return {VISIBLE: ",".join(gpu.handle for gpu in self.train), ORDER: "PCI_BUS_ID", **_allocator()}

    @property
    def colocated(self) -> bool:
        """True if training and serving share GPUs."""
        return self.sharing != "apart"

    @property
    def weight_transfer(self) -> Literal["nccl", "disk"]:
        """The way in which full weights reach SGLang."""
        return "nccl" if self.train and self.servers and self.sharing == "apart" else "disk"

    @property
    def variables(self) -> dict[str, str]:
        """Variables that pass this placement on to a child process, which sees only its own GPUs."""
        return {VARIABLE: msgspec.json.encode(self).decode()}


def _allocator(environ: Mapping[str, str] | None = None, devices: Path = Path("/dev")) -> dict[str, str]:
    """The setting of torch's allocator for a trainer, whose tensors have other lengths in each step: segments that grow
    leave no gaps. Nothing where the user set one, and under Windows, whose driver lacks what this needs (pytorch issue
    192330).
    """
    environ = os.environ if environ is None else environ
    if any(name in environ for name in ALLOCATOR) or (devices / "dxg").exists():
        return {}
    return {ALLOCATOR[0]: "expandable_segments:True"}


def inherited_placement(environ: Mapping[str, str] | None = None) -> Placement | None:
    """The placement that this process was started under; `None` if it was started by hand."""
    encoded = (os.environ if environ is None else environ).get(VARIABLE)
    return msgspec.json.decode(encoded, type=Placement) if encoded else None
