"""Settings of training and serving on your own GPUs."""

from __future__ import annotations

import shlex
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from openclaw_rl.shared.settings.group import Group


def _command_line(value: str) -> str:
    try:
        shlex.split(value)
    except ValueError as error:
        raise ValueError(f"not a command line that a shell would take ({error})") from error
    return value


CommandLine = Annotated[str, AfterValidator(_command_line)]


class GpuSettings(Group):
    """Placement on GPUs, Megatron-core, and how SGLang is started."""

    gpus: str = Field(
        "auto",
        description="GPUs to use: auto, a number, or a list such as 0,1,2,3; the planner divides them among "
        "the roles, unless actor_gpus, rollout_gpus and judge_gpus are set",
    )
    actor_gpus: str = Field("", description="GPUs that train: a number or a list")
    rollout_gpus: str = Field("", description="GPUs that serve the policy: a number or a list")
    judge_gpus: str = Field(
        "", description="GPUs that serve separate models of judge, hints and teacher: a number or a list"
    )
    tensor_parallel: int = Field(
        1,
        ge=1,
        description="GPUs that share each layer in training (backend = megatron); training GPUs / tensor_parallel is "
        "the number of data-parallel replicas",
    )
    distributed_optimizer: bool = Field(
        False,
        description="Shard the optimizer's state among data-parallel ranks; resuming such a checkpoint needs the same "
        "number of ranks and the same tensor_parallel",
    )
    sglang_python: str = Field(
        "", description="Python of the environment that SGLang is installed in (backend = megatron)"
    )
    sglang_command: CommandLine = Field(
        "",
        description="Command that starts SGLang in place of sglang_python, for instance in a container. {args} stands "
        "for the arguments (appended if it is absent), {gpus} for the GPUs, {name} for the name of the container, and "
        "{env} for the options that set its environment variables. {module}, as in python -m {module}, stands for the "
        "module of SGLang's server or router",
    )
    sglang_args: CommandLine = Field("", description="Additional arguments for SGLang, such as --quantization fp8")
    rollout_tensor_parallel: int = Field(
        0, ge=0, description="GPUs of one SGLang server; 0: all GPUs that serve the policy"
    )
    weight_transfer: Literal["auto", "nccl", "gloo", "disk"] = Field("auto", exclude=True)
    """No setting: how full weights reach SGLang."""

    @property
    def sglang_options(self) -> list[str]:
        """The names of the options in `sglang_args`, without their values: `--config` of `--config=FILE`."""
        return [word.partition("=")[0] for word in shlex.split(self.sglang_args) if word.startswith("--")]

    @property
    def quantization(self) -> str:
        """The quantization that SGLang serves the policy in by its arguments; "" for the model's own."""
        words = shlex.split(self.sglang_args.replace("--quantization=", "--quantization "))
        return words[words.index("--quantization") + 1] if "--quantization" in words[:-1] else ""
