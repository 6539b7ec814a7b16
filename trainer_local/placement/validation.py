"""Refusals of settings that contradict the model or the number of GPUs, each with the setting to change."""

from __future__ import annotations

from collections.abc import Mapping

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.placement import ServerRole
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_local.placement.model_shape import ModelShape

ROLES = ("train", "serve", "judge")
SETTINGS = {"train": "actor_gpus", "serve": "rollout_gpus", "judge": "judge_gpus"}

Shapes = Mapping[ServerRole, ModelShape | None]
"""Shape of each server's model, `None` if unknown; the policy's is also the one that is trained."""


def check_settings(settings: Settings, shape: ModelShape | None) -> None:
    """Raise `ConfigError` for settings of training that no GPUs could satisfy."""
    if not settings.learning.train:
        return
    model, size = settings.engine.model, settings.gpu.tensor_parallel
    quantized = settings.gpu.quantization or (shape.quantization if shape is not None else "")
    if quantized and not settings.learning.lora:
        raise ConfigError(
            f"model = {model} is served quantized ({quantized}), and lora = false would need requantizing for every "
            "version: set lora = true, or serve bfloat16"
        )
    if shape is not None and shape.experts and not settings.learning.lora:
        raise ConfigError(
            f"lora = false would train all {shape.experts} experts of each layer of model = {model}, which "
            "Megatron-core does not do here: set lora = true"
        )
    if shape is None or size == 1:
        return
    if shape.why_not_megatron:
        raise ConfigError(_one_gpu(settings, shape, "tensor_parallel"))
    if any(count % size for count in (shape.groups, shape.heads, shape.feed_forward)):
        raise ConfigError(
            f"tensor_parallel = {size} does not divide the {shape.groups} key-value heads, {shape.heads} attention "
            f"heads and feed-forward width {shape.feed_forward} of model = {model}: set it to a number that does"
        )


def why_unusable(settings: Settings, shapes: Shapes, role: str, size: int) -> str:
    """The reason why a role cannot use `size` GPUs, with the settings to change; "" if it can."""
    policy = shapes["policy"]
    if role == "train" and size > 1 and policy is not None and policy.why_not_megatron:
        return _one_gpu(settings, policy, "actor_gpus")
    setting = {"train": "tensor_parallel", "serve": "rollout_tensor_parallel", "judge": "judge_gpus"}[role]
    each = size if role == "judge" else settings.value(setting) or size
    if size % each:
        return (
            f"{setting} = {each} does not divide the {size} GPUs of {SETTINGS[role]}: set it to a number that does, or "
            f"{SETTINGS[role]} to a multiple of {each}"
        )
    for name, shape in shapes.items():
        if shape is None or role != ("serve" if name == "policy" else "judge"):
            continue
        # SGLang cuts query heads evenly, and key-value heads evenly or copies each to several GPUs.
        if shape.heads % each or (shape.groups % each and each % shape.groups):
            return (
                f"{each} GPUs cannot share one server of the {name}'s model, which has {shape.heads} attention heads "
                f"and {shape.groups} key-value heads: set {setting} to a number that divides both, such as 1"
            )
    return ""


def _one_gpu(settings: Settings, shape: ModelShape, setting: str) -> str:
    return (
        f"model = {settings.engine.model} {shape.why_not_megatron}, so the transformers trainer trains it, on one GPU. "
        f"Set {setting} = 1"
    )
