"""Settings of placement that contradict each other, the model, or the number of GPUs: each refused with its reason and
the way out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.settings.judge_models import JudgeRole
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_local.placement.assignments import Assignment, apart
from openclaw_rl.trainer_local.placement.model_shape import ModelShape


def shareable(shape: ModelShape | None, parts: int) -> bool:
    """Whether SGLang can share a model out among `parts` GPUs: as many query heads on each, and key-value heads too, or
    each of those on as many GPUs.
    """
    if shape is None or parts == 1:
        return True
    even = shape.groups % parts == 0 or parts % shape.groups == 0
    return shape.heads % parts == 0 and even


def check(settings: Settings, shape: ModelShape | None) -> None:
    """Raise `ConfigError` for settings that no GPUs could honour."""
    if settings.train and not settings.lora:
        told = ""
        if settings.quantization:
            told = f"quantization = {settings.quantization}"
        elif shape is not None and shape.quantization:
            told = f"model = {settings.model}, which is quantized ({shape.quantization}),"
        if told:
            raise ConfigError(
                f"{told} and lora = false: full updates of quantized weights would need requantizing for every "
                "version. Set lora = true, whose adapters go beside quantized weights, or serve bfloat16"
            )
    if shape is not None and settings.train and settings.tensor_parallel > 1:
        _check_tensor_parallel(settings, shape)


def check_way(
    settings: Settings, shape: ModelShape | None, way: Assignment, judges: Mapping[JudgeRole, ModelShape | None]
) -> None:
    """Raise `ConfigError` where a role cannot use as many GPUs as `way` gives it."""
    _check_train(settings, shape, len(way.get("train", ())))
    _check_serve(settings, shape, len(way.get("serve", ())))
    judge = len(way.get("judge", ()))
    for name, model in judges.items() if judge else ():
        if model is not None and not shareable(model, judge):
            raise ConfigError(
                f"{judge} GPUs cannot share one server of the {name}'s model: SGLang shares out its {model.heads} "
                f"attention heads and {model.groups} key-value heads evenly. Set judge_gpus to "
                f"{_choices(range(1, judge), lambda size: all(shareable(one, size) for one in judges.values()))}"
            )
    if settings.lora or not (way.get("train") and way.get("serve")):
        return  # adapters need no transfer from GPU to GPU
    if settings.weight_transfer == "nccl" and not apart(way):
        raise ConfigError(
            "weight_transfer = nccl goes from one GPU to another, and training and serving share theirs: set "
            "weight_transfer = auto, which goes by disk"
        )


def _check_tensor_parallel(settings: Settings, shape: ModelShape) -> None:
    parts = settings.tensor_parallel
    if shape.why_not_megatron:
        raise ConfigError(
            f"tensor_parallel = {parts}: model = {settings.model} {shape.why_not_megatron}, so the transformers "
            "trainer trains it, which uses one GPU. Set tensor_parallel = 1"
        )
    sizes = {"key-value heads": shape.groups, "attention heads": shape.heads, "feed-forward width": shape.feed_forward}
    for name, size in sizes.items():
        if size % parts:
            numbers = range(1, shape.groups + 1)
            raise ConfigError(
                f"tensor_parallel = {parts} does not divide the {size} {name} of model = {settings.model}: set it to "
                f"{_choices(numbers, lambda one: not any(other % one for other in sizes.values()))}"
            )


def _check_train(settings: Settings, shape: ModelShape | None, train: int) -> None:
    if train > 1 and shape is not None and shape.why_not_megatron:
        raise ConfigError(
            f"{train} GPUs to train on: model = {settings.model} {shape.why_not_megatron}, so the transformers trainer "
            "trains it, which uses one GPU. Set actor_gpus = 1"
        )
    if train % settings.tensor_parallel:
        raise ConfigError(
            f"tensor_parallel = {settings.tensor_parallel} does not divide the {train} GPUs of this machine that train "
            f"(actor_gpus): set it to {_choices(range(1, train + 1), lambda one: train % one == 0)}, or train on a "
            f"multiple of {settings.tensor_parallel}"
        )


def _check_serve(settings: Settings, shape: ModelShape | None, serve: int) -> None:
    each = settings.rollout_tensor_parallel or serve
    if not serve:
        return
    if serve % each:
        raise ConfigError(
            f"rollout_tensor_parallel = {each} does not divide the {serve} GPUs that serve (rollout_gpus): set it to "
            f"{_choices(range(1, serve + 1), lambda one: serve % one == 0)}, or serve on a multiple of {each}"
        )
    if shape is not None and not shareable(shape, each):
        raise ConfigError(
            f"{each} GPUs cannot share one server of model = {settings.model}: SGLang shares out its {shape.heads} "
            f"attention heads and {shape.groups} key-value heads evenly. Set rollout_tensor_parallel to "
            f"{_choices(range(1, serve + 1), lambda one: serve % one == 0 and shareable(shape, one))}"
        )


def _choices(numbers: Sequence[int], good: Callable[[int], bool]) -> str:
    """Those of `numbers` that would do, in words; 1 always does."""
    found = [str(number) for number in numbers if good(number)] or ["1"]
    return found[0] if len(found) == 1 else f"{', '.join(found[:-1])} or {found[-1]}"
