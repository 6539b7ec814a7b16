"""Settings of training and serving on GPUs of one's own; the rest is in `shared.settings.settings`."""

from __future__ import annotations

import shlex
from typing import Literal

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings


class GpuSettings(BaseSettings):
    """Where things run, how Megatron-core trains, and how SGLang is started and given new weights."""

    # Placement
    gpus: str = Field(
        "auto",
        description="GPUs to use: auto, a number, or a list such as 0,1,2,3; how many train and how many serve follows "
        "unless the next three say it",
    )
    actor_gpus: str = Field("", description="GPUs that train: a number or a list")
    rollout_gpus: str = Field("", description="GPUs that serve the policy: a number or a list")
    judge_gpus: str = Field("", description="GPUs that serve a judge model of its own: a number or a list")

    # Megatron-core
    tensor_parallel: int = Field(1, ge=1, description="GPUs that share each layer in training (backend = megatron)")
    distributed_optimizer: bool = Field(
        False, description="Share the optimizer's state among data-parallel ranks; its checkpoints fit one layout only"
    )

    # SGLang
    sglang_python: str = Field(
        "", description="Python of the environment that SGLang is installed in (backend = megatron)"
    )
    sglang_command: str = Field(
        "",
        description="Command that starts SGLang, if not sglang_python: its arguments are put after it, or where it has "
        "{args}, a container's for instance; {gpus} is replaced by the GPUs it gets",
    )
    sglang_router_command: str = Field(
        "",
        description="Command that starts SGLang's router, before several servers; default: the one of sglang_python",
    )
    sglang_args: str = Field("", description="Further arguments of SGLang's command line")
    rollout_tensor_parallel: int = Field(
        0, ge=0, description="GPUs that share one SGLang server; 0 takes all that serve the policy"
    )
    quantization: str = Field(
        "", description="Quantization that SGLang serves the policy in: fp8, awq, gptq…; default: the model's own"
    )
    weight_transfer: Literal["auto", "ipc", "nccl", "gloo", "disk"] = Field(
        "auto", description="How full weights reach SGLang: ipc where both are on one GPU, nccl across GPUs, gloo, disk"
    )

    @field_validator("sglang_command", "sglang_router_command", "sglang_args", mode="after")
    @classmethod
    def _line(cls, value: str) -> str:
        try:
            shlex.split(value)
        except ValueError as error:
            raise ValueError(f"not a command line that a shell would take ({error})") from error
        return value
