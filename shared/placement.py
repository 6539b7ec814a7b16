"""Which GPUs train, which serve the policy, which serve a judge, and whether all that fits.

`placement(settings, gpus)` is called once, by whoever starts the processes (`serve`, `doctor`), since each process then
sees only the GPUs that it is given. Nothing here asks a GPU anything or loads torch: `shared.gpus` tells which there
are, `shared.gpu_memory` estimates what each part takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from shared.gpus import ORDER, VISIBLE, Gpu

Sharing = Literal["apart", "together", "turns"]
"""How training and serving share GPUs: `apart` on GPUs of their own; `together` on the same ones, where both fit at
once; `turns` on the same ones, where a step fits only while SGLang has given the memory of its KV cache back.
"""


def environment_of(gpus: Sequence[Gpu]) -> dict[str, str]:
    """The variables of a process that is to see these GPUs and no others, in this order."""
    return {VISIBLE: ",".join(gpu.handle for gpu in gpus), ORDER: "PCI_BUS_ID"}


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the estimate: what `role` (`trainer`, `server`, `judge`) needs for `what` on each of its GPUs, in
    bytes. `host`: it is in the machine's own memory instead. `at`: only `step` (while a step is made), only `serving`
    (while answers are sampled and no step is made), or `always`.
    """

    role: str
    what: str
    bytes: int
    host: bool = False
    at: Literal["always", "step", "serving"] = "always"


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """One SGLang server. `model` is the folder or hub name that it serves."""

    role: Literal["policy", "judge", "hint"]
    model: str
    gpus: tuple[Gpu, ...]
    tensor_parallel: int
    """`--tp-size`; as many as `gpus`."""
    memory_fraction: float = 0.0
    """`--mem-fraction-static` on GPUs that nothing else holds memory of yet; 0 leaves it to SGLang, as where the GPUs are
    the server's own. See `fraction` for a server that is started later.
    """
    static_bytes: int = 0
    """What that fraction stands for on each GPU: weights, adapters and KV cache."""
    kv_tokens: int = 0
    """Tokens that its KV cache will hold, about; 0 where that is not known."""
    lends_memory: bool = False
    """To be started with `--enable-memory-saver`: before a step its KV cache is given back
    (`/release_memory_occupation {"tags": ["kv_cache"]}`, which SGLang does only while it answers nobody) and taken again
    right after (`/resume_memory_occupation`).
    """

    @property
    def environment(self) -> dict[str, str]:
        """Variables of its process: it sees its own GPUs, as 0, 1, …"""
        return environment_of(self.gpus)

    def fraction(self, free: int) -> float:
        """`--mem-fraction-static` for a start with `free` bytes free on each GPU. SGLang takes the fraction of what is
        free when it starts (`mem_cache/kv_cache_configurator.py`, 0.5.23), so that one which is started again beside a
        trainer needs another than at first.
        """
        if not self.static_bytes or free <= 0:
            return self.memory_fraction
        return min(0.98, round(self.static_bytes / free, 3))


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Who runs where on this machine, and what it takes. Roles that were not asked for have no GPUs."""

    trainer: Literal["megatron", "transformers"]
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
    """The estimate; empty where the model's shape or a GPU's memory is not known."""
    notes: tuple[str, ...] = ()
    """What a person should know though it hinders nothing."""
    refusal: str = ""
    """Why it cannot be so, and what would help; "" if it can. `placement` raises it."""

    @property
    def trainer_environment(self) -> dict[str, str]:
        """Variables of the trainer's process, whose children inherit them: it sees the training GPUs as 0, 1, …"""
        return environment_of(self.train)

    @property
    def weight_transfer(self) -> Literal["ipc", "nccl", "disk"]:
        """What `weight_transfer = auto` means here: how full weights reach SGLang."""
        if not self.train or not self.servers:
            return "disk"
        return "nccl" if self.sharing == "apart" else "ipc"


def placement(settings: object, gpus: Sequence[Gpu], environ: Mapping[str, str] | None = None) -> Placement:
    """Who runs where. Raises `ConfigError` saying why it cannot be so, and what would help."""
    raise NotImplementedError("being written: the structs above are what it will give")
