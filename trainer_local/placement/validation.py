"""Refusals of settings that contradict each other, the model, or the number of GPUs, each with the way out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.placement import ServerRole
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_local.placement.model_shape import ModelShape

Shapes = Mapping[ServerRole, ModelShape | None]
"""The model of each server, where its shape is known; the policy's is also the one that is trained."""


def check_settings(settings: Settings, shape: ModelShape | None) -> None:
    """Raise `ConfigError` for settings that no GPUs could satisfy."""
    size = settings.tensor_parallel
    if not settings.train:
        return
    quantized = f"--quantization {settings.quantization} in sglang_args" if settings.quantization else ""
    if not quantized and shape is not None and shape.quantization:
        quantized = f"model = {settings.model}, which is quantized ({shape.quantization}),"
    if quantized and not settings.lora:
        raise ConfigError(
            f"{quantized} and lora = false: full updates of quantized weights would need requantizing for every "
            "version. Set lora = true, whose adapters go with quantized weights, or serve bfloat16"
        )
    if shape is None or size == 1:
        return
    if shape.why_not_megatron:
        raise ConfigError(_one_gpu(f"tensor_parallel = {size}", settings, shape, "tensor_parallel"))
    parts = {"key-value heads": shape.groups, "attention heads": shape.heads, "feed-forward width": shape.feed_forward}
    fitting = [one for one in range(1, shape.groups + 1) if not any(count % one for count in parts.values())]
    for name, count in parts.items():
        if count % size:
            raise ConfigError(
                f"tensor_parallel = {size} does not divide the {count} {name} of model = {settings.model}: set it to "
                f"{_choices(fitting)}"
            )


def why_unusable(settings: Settings, shapes: Shapes, role: str, size: int) -> str:
    """Why a role cannot use `size` GPUs, with the numbers that it can; "" if it can use them."""
    policy, divisors = shapes["policy"], [one for one in range(1, size + 1) if size % one == 0]
    if role == "train":
        parallel = settings.tensor_parallel
        if size > 1 and policy is not None and policy.why_not_megatron:
            return _one_gpu(f"{size} GPUs to train on", settings, policy, "actor_gpus")
        if size % parallel == 0:
            return ""
        return (
            f"tensor_parallel = {parallel} does not divide the {size} GPUs of this machine that train (actor_gpus): "
            f"set it to {_choices(divisors)}, or train on a multiple of {parallel}"
        )
    each, setting, possible = size, "judge_gpus", [*range(1, size)]
    if role == "serve":
        each, setting, possible = settings.rollout_tensor_parallel or size, "rollout_tensor_parallel", divisors
    if size % each:
        return (
            f"rollout_tensor_parallel = {each} does not divide the {size} GPUs that serve (rollout_gpus): set it to "
            f"{_choices(divisors)}, or serve on a multiple of {each}"
        )
    for name, shape in shapes.items():
        if (name == "policy") == (role == "serve") and shape is not None and not _shareable(shape, each):
            return (
                f"{each} GPUs cannot share one server of the {name}'s model: SGLang shares out its {shape.heads} "
                f"attention heads and {shape.groups} key-value heads evenly. Set {setting} to "
                f"{_choices([one for one in possible if _shareable(shape, one)])}"
            )
    return ""


def _shareable(shape: ModelShape, size: int) -> bool:
    """True if SGLang can share a model: query heads evenly, and key-value heads evenly or each on several GPUs."""
    return shape.heads % size == 0 and (shape.groups % size == 0 or size % shape.groups == 0)


def _one_gpu(what: str, settings: Settings, shape: ModelShape, setting: str) -> str:
    return (
        f"{what}: model = {settings.model} {shape.why_not_megatron}, so the transformers trainer trains it, which uses "
        f"one GPU. Set {setting} = 1"
    )


def _choices(sizes: Sequence[int]) -> str:
    """The sizes in words; 1 always fits."""
    words = [str(size) for size in sizes] or ["1"]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
