"""What a placement is: which GPU does what, and what each process is to be told. `trainer_local.placement.place`
makes one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from openclaw_rl.shared.gpus import ORDER, VISIBLE, Gpu
from openclaw_rl.trainer_local.placement import memory
from openclaw_rl.trainer_local.placement.memory import Part

VARIABLE = "OPENCLAW_PLACEMENT"

Sharing = Literal["apart", "together", "alternating"]
"""How training and serving share GPUs: `apart` on GPUs of their own; `together` on the same ones, where both fit at
once; `alternating` on the same ones, where a step fits only while SGLang has given memory back (`Server.lends`).
"""


def environment_of(gpus: Sequence[Gpu]) -> dict[str, str]:
    """The variables of a process that is to see these GPUs and no others, in this order."""
    return {VISIBLE: ",".join(gpu.handle for gpu in gpus), ORDER: "PCI_BUS_ID"}


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """One SGLang server. `model` is the folder or hub name that it serves."""

    role: Literal["policy", "judge", "hint"]
    model: str
    gpus: tuple[Gpu, ...]
    tensor_parallel: int
    """`--tp-size`; as many as `gpus`."""
    memory_fraction: float = 0.0
    """`--mem-fraction-static` on GPUs that nothing else holds memory of yet; 0 leaves it to SGLang, as where the GPUs
    are the server's own. See `fraction` for a server that is started later.
    """
    static_bytes: int = 0
    """What that fraction stands for on each GPU: weights, adapters and KV cache."""
    kv_tokens: int = 0
    """Tokens that its KV cache will hold, about; 0 where that is not known."""
    lends: tuple[str, ...] = ()
    """What it gives back for each step, as SGLang's tags: nothing, `kv_cache`, or that and `weights`. Then it is
    started with `--enable-memory-saver` (for `weights` with `--enable-weights-cpu-backup` too); before a step comes
    `/release_memory_occupation {"tags": […]}`, which SGLang does only while it answers nobody, and right after it, when
    the trainer has emptied torch's cache, `/resume_memory_occupation`.
    """

    @property
    def environment(self) -> dict[str, str]:
        """Variables of its process: it sees its own GPUs, as 0, 1, …"""
        return environment_of(self.gpus)

    def fraction(self, free: int) -> float:
        """`--mem-fraction-static` for a start with `free` bytes free on each GPU. SGLang takes the fraction of what is
        free when it starts (`mem_cache/kv_cache_configurator.py`, 0.5.23), so one that is started beside a trainer, or
        beside another server, needs another than on an empty card.
        """
        return fraction_at(free, self.memory_fraction, self.static_bytes)


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Who runs where on this machine, and what it takes. Roles that were not asked for have no GPUs."""

    trainer: Literal["megatron", "transformers"] = "megatron"
    """The trainer that can train this model: `trainer_local.megatron` dense Qwen3 models, on any number of GPUs,
    `trainer_local.transformers_trainer` every other one, on one GPU."""
    why_not_megatron: str = ""
    """Why the trainer is transformers', in words; "" where it is Megatron-core's."""
    train: tuple[Gpu, ...] = ()
    """GPUs of this machine that train, in the order of their local ranks."""
    tensor_parallel: int = 1
    data_parallel: int = 1
    """Over all nodes: nodes · len(train) / tensor_parallel."""
    nodes: int = 1
    """Machines that train under torchrun; 1 without it."""
    servers: tuple[Server, ...] = ()
    """The policy's, to be put behind SGLang's router where there are several."""
    judges: tuple[Server, ...] = ()
    """Those of judge and hint model, where they are models of their own that this machine serves."""
    sharing: Sharing = "apart"
    """Where it is not `apart` the servers have to be up before the trainer is started: they measure what is free."""
    parts: tuple[Part, ...] = ()
    """The estimate; empty where the model's shape is not known."""
    notes: tuple[str, ...] = ()
    """What a person should know though it hinders nothing."""
    refusal: str = ""
    """Why it cannot be so, and what would help; "" if it can. `placement` raises it."""

    @property
    def trainer_environment(self) -> dict[str, str]:
        """Variables of the trainer's process, whose children inherit them: it sees the training GPUs as 0, 1, …"""
        return environment_of(self.train)

    @property
    def actor(self) -> tuple[str, ...]:
        """What `CUDA_VISIBLE_DEVICES` calls the GPUs that train."""
        return tuple(gpu.handle for gpu in self.train)

    @property
    def rollout(self) -> tuple[str, ...]:
        """The same of those that serve the policy."""
        return tuple(gpu.handle for server in self.servers for gpu in server.gpus)

    @property
    def judge(self) -> tuple[str, ...]:
        """The same of those that serve judge and hint model."""
        return tuple(dict.fromkeys(gpu.handle for server in self.judges for gpu in server.gpus))

    @property
    def colocated(self) -> bool:
        """Whether training and serving share GPUs."""
        return self.sharing != "apart"

    @property
    def lends(self) -> tuple[str, ...]:
        """What the policy's servers give back for each step (`Server.lends`); all the same."""
        return self.servers[0].lends if self.train and self.servers else ()

    @property
    def variables(self) -> dict[str, str]:
        """What tells a child process of this placement, so that it need not find it anew:
        `trainer_local.placement.place.placed`
        reads it there. A child sees only the GPUs that it was given, and could not.
        """
        return {VARIABLE: msgspec.json.encode(self).decode()}

    @property
    def weight_transfer(self) -> Literal["nccl", "disk"]:
        """What `weight_transfer = auto` means here: how full weights reach SGLang."""
        return "nccl" if self.train and self.servers and self.sharing == "apart" else "disk"


def fraction_at(free: int, planned: float, static_bytes: int) -> float:
    """See `Server.fraction`: what was `planned` where it cannot be told better."""
    if not (planned and static_bytes) or free <= memory.CONTEXT:
        return planned
    return fraction_of(static_bytes, free)


def fraction_of(static_bytes: int, free: int) -> float:
    """`--mem-fraction-static` where `free` bytes of a GPU are free before the server takes any. SGLang looks when it
    has its CUDA context, and rounding must not take what was planned for others.
    """
    return min(0.98, max(1, int(1000 * static_bytes / (free - memory.CONTEXT))) / 1000)
