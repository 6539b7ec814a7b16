"""What would make a model fit that does not: each change is tried, and only those that help are named."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from openclaw_rl.shared.gpus import Gpu
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_local.placement.model_shape import ModelShape

Changes = Mapping[str, object]
Fits = Callable[[Changes, Sequence[Gpu]], bool]
"""Whether the model fits with these settings changed, on these GPUs."""

TURNS = (16384, 8192, 4096)
"""Lengths that turns or conversations may be bounded to."""
MORE = (2, 4, 8)
COSTLY = frozenset(["max_sample_tokens", "context_length", "lora"])
"""Settings that change what is learned."""
SHOWN = 3
"""How many changes are named of which each would be enough."""


def remedies(settings: Settings, gpus: Sequence[Gpu], shape: ModelShape | None, fits: Fits) -> str:
    """What to change, as a sentence."""
    changes = _changes(settings, shape)
    enough = [found for variants in changes if (found := next((one for one in variants if fits(one, gpus)), None))]
    if any("max_sample_tokens" in one for one in enough):
        enough = [one for one in enough if "context_length" not in one]  # which would bound turns as well
    together = None if enough else _fewest(changes, gpus, fits, {})
    told = [_told(one) for one in enough[:SHOWN]] + ([f"{_told(together)} together"] if together else [])
    bound = 1 if enough else len(together) if together else len(changes) + 1
    more = _more(gpus, changes, fits, bound)
    if more and len(told) < SHOWN:
        told.append(more)
    if not told:
        return "No setting makes it fit: take a smaller model, or GPUs with more memory"
    # Rather what costs time than what costs turns.
    first = next((one for one in enough if not COSTLY & {*one}), enough[0]) if enough else together
    flags = f". As flags: {flags_of(first)}" if first else ""
    return f"What would be enough: {', or '.join(told)}{flags}"


def flags_of(changes: Changes) -> str:
    """Changes as they are written on a command line."""
    return " ".join(
        f"--{name.replace('_', '-')}" + ("" if value is True else f" {value}") for name, value in changes.items()
    )


def _changes(settings: Settings, shape: ModelShape | None) -> list[list[Changes]]:
    """What can be changed, in the order of what it costs a person, each with its variants, mildest first."""
    found: list[list[Changes]] = []
    if settings.train and not settings.recomputes(on_gpu=True):
        found.append([{"recompute": True}])
    if settings.train and not settings.lora and not settings.offload_optimizer:
        found.append([{"offload_optimizer": True}])
        if shape is not None and not shape.why_not_megatron and not settings.distributed_optimizer:
            found.append([{"distributed_optimizer": True}])
    if settings.train:
        found.append(
            [
                {"max_sample_tokens": length}
                | ({"micro_batch_tokens": length} if length < settings.micro_batch_tokens else {})
                for length in TURNS
                if length < settings.max_sample_tokens
            ]
        )
    context = settings.context_length or (shape.context if shape else 0)
    if not settings.engine_url:
        found.append([{"context_length": length} for length in (32768, *TURNS) if length < context])
    if (settings.lora or not settings.train) and not settings.quantization and not (shape and shape.quantization):
        found.append([{"quantization": "fp8"}])
    if settings.train and shape is not None and not shape.why_not_megatron:
        sizes = (size for size in MORE if size > settings.tensor_parallel and shape.groups % size == 0)
        found.append([{"tensor_parallel": size} for size in sizes])
    if settings.train and not settings.lora:
        found.append([{"lora": True}])
    return [variants for variants in found if variants]


def _fewest(changes: Sequence[Sequence[Changes]], gpus: Sequence[Gpu], fits: Fits, given: Changes) -> Changes | None:
    """A set of changes that is enough beside those `given`, without any that could be left out and each as mild as it
    may be; `None` where all of them are not enough.
    """
    split = [variants for variants in changes if "tensor_parallel" not in variants[0]]
    shares: list[Changes] = [{}, *(one for variants in changes if "tensor_parallel" in variants[0] for one in variants)]

    def joined(parts: Sequence[Changes], share: Changes) -> Changes:
        return {name: value for part in (given, *parts, share) for name, value in part.items()}

    for share in shares:
        chosen = [variants[-1] for variants in split]
        if not fits(joined(chosen, share), gpus):
            continue
        for last in reversed([variants[-1] for variants in split]):
            fewer = [one for one in chosen if one is not last]
            if fits(joined(fewer, share), gpus):
                chosen = fewer
        for variants in split:
            if variants[-1] in chosen:
                place = chosen.index(variants[-1])
                milder = ([*chosen[:place], one, *chosen[place + 1 :]] for one in variants)
                chosen = next((way for way in milder if fits(joined(way, share), gpus)), chosen)
        return {name: value for part in (*chosen, share) for name, value in part.items()}
    return None


def _more(gpus: Sequence[Gpu], changes: Sequence[Sequence[Changes]], fits: Fits, bound: int) -> str:
    """More GPUs like these, where nothing is said of who gets which, with fewer than `bound` other changes."""
    smallest = min(gpus, key=lambda gpu: gpu.memory)
    free: Changes = dict.fromkeys(("gpus", "actor_gpus", "rollout_gpus", "judge_gpus"), "")
    keeps = [variants for variants in changes if "lora" not in variants[0]]
    for number in (number for number in MORE if number > len(gpus)):
        like = [msgspec.structs.replace(smallest, number=one, handle=str(one), uuid="") for one in range(number)]
        needed = _fewest(keeps, like, fits, free)
        if needed is not None and len(needed) < bound:
            return f"{number} such GPUs" + (f" with {_told(needed)}" if needed else "")
    return ""


def _told(changes: Changes) -> str:
    settings = [f"{name} = {str(value).lower()}" for name, value in changes.items()]
    return " and ".join([", ".join(settings[:-1]), settings[-1]] if len(settings) > 1 else settings)
