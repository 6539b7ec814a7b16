"""Refusals of settings that contradict each other, the model, or the number of GPUs, each with what to set instead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.placement import ServerRole
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_local.placement.assignments import SETTINGS
from openclaw_rl.trainer_local.placement.model_shape import ModelShape

Shapes = Mapping[ServerRole, ModelShape | None]
"""Shape of each server's model, `None` if unknown; the policy's is also the one that is trained."""


def check_settings(settings: Settings, shape: ModelShape | None) -> None:
    """Raise `ConfigError` for settings that no GPUs could satisfy."""
    if not settings.learning.train:
        return
    quantized = settings.gpu.quantization or (shape.quantization if shape is not None else "")
    if quantized and not settings.learning.lora:
        raise ConfigError(
            f"model = {settings.engine.model} is served quantized ({quantized}), and lora = false would need "
            "requantizing for every version: set lora = true, or serve bfloat16"
        )
    size = settings.gpu.tensor_parallel
    if shape is None or size == 1:
        return
    if shape.why_not_megatron:
        raise ConfigError(_one_gpu(settings, shape, "tensor_parallel"))
    counts = (shape.groups, shape.heads, shape.feed_forward)
    if any(count % size for count in counts):
        fitting = [one for one in range(1, shape.groups + 1) if not any(count % one for count in counts)]
        raise ConfigError(
            f"tensor_parallel = {size} does not divide the {shape.groups} key-value heads, {shape.heads} attention "
            f"heads and feed-forward width {shape.feed_forward} of model = {settings.engine.model}: set it to "
            f"{_choices(fitting)}"
        )


def why_unusable(settings: Settings, shapes: Shapes, role: str, size: int) -> str:
    """The reason why a role cannot use `size` GPUs, with the settings to change; "" if it can."""
    policy, divisors = shapes["policy"], [one for one in range(1, size + 1) if size % one == 0]
    if role == "train" and size > 1 and policy is not None and policy.why_not_megatron:
        return _one_gpu(settings, policy, "actor_gpus")
    setting = {"train": "tensor_parallel", "serve": "rollout_tensor_parallel", "judge": "judge_gpus"}[role]
    each = size if role == "judge" else settings.value(setting) or size
    if size % each:
        return (
            f"{setting} = {each} does not divide the {size} GPUs of {SETTINGS[role]}: set it to {_choices(divisors)}, "
            f"or {SETTINGS[role]} to a multiple of {each}"
        )
    possible = range(1, size) if role == "judge" else divisors
    for name, shape in shapes.items():
        served = role == ("serve" if name == "policy" else "judge")
        if served and shape is not None and not _shareable(shape, each):
            return (
                f"{each} GPUs cannot share one server of the {name}'s model, which has {shape.heads} attention heads "
                f"and {shape.groups} key-value heads. Set {setting} to "
                f"{_choices(one for one in possible if _shareable(shape, one))}"
            )
    return ""


def _shareable(shape: ModelShape, size: int) -> bool:
    """True if SGLang can share a model: query heads evenly, and key-value heads evenly or each on several GPUs."""
    return shape.heads % size == 0 and (shape.groups % size == 0 or size % shape.groups == 0)


def _one_gpu(settings: Settings, shape: ModelShape, setting: str) -> str:
    return (
        f"model = {settings.engine.model} {shape.why_not_megatron}, so the transformers trainer trains it, on one GPU. "
        f"Set {setting} = 1"
    )


def _choices(sizes: Iterable[int]) -> str:
    """The sizes in words; 1 always fits."""
    *most, last = [str(size) for size in sizes] or ["1"]
    return f"{', '.join(most)} or {last}" if most else last
