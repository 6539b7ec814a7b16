"""The trainer of a policy on your own GPUs, and the form in which SGLang gets its versions: from the settings and the
model's `config.json` alone, without torch.

Megatron-core trains Qwen3's text models, dense or with experts. Every other model, with its images, has the
transformers trainer on one GPU. SGLang serves either.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.hooks import resolve
from openclaw_rl.shared.placement import inherited_placement
from openclaw_rl.shared.rendering.families import FAMILIES, MODEL_TYPES, model_config
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_local.placement.model_shape import why_not_megatron

if TYPE_CHECKING:
    from openclaw_rl.shared.trainer import Trainer

MEGATRON, TRANSFORMERS = "megatron", "transformers"
_CREATE = {
    MEGATRON: ("openclaw_rl.trainer_local.megatron.trainer:create", "gpu"),
    TRANSFORMERS: ("openclaw_rl.trainer_local.transformers_trainer:create", "local"),
}

_LAUNCH = "openclaw_rl.trainer_local.megatron.launch:launch"
_ALTERNATING, _ENGINE = (
    "openclaw_rl.trainer_local.colocation:AlternatingTrainer",
    "openclaw_rl.trainer_local.sglang.client:connect",
)

FOR_SGLANG = "sglang"
"""Folder in that of a version's adapter with the same adapter under SGLang's names, where those are others."""
_PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
_DELTA_NET = ("in_proj_qkv", "in_proj_z", "out_proj")
_NEEDS = {
    "q_proj": {"v_proj"},
    "k_proj": {"q_proj", "v_proj"},
    "v_proj": {"q_proj"},
    "up_proj": {"gate_proj"},
    "in_proj_qkv": {"in_proj_z"},
    "in_proj_z": {"in_proj_qkv"},
}
"""Projections that SGLang computes in one: what an adapter of the first has to have too."""
_EXPERTS = {"gate_proj", "up_proj", "down_proj"}
_HYBRIDS = ("qwen3_5", "qwen3_5_text")


def create(settings: Settings) -> Trainer:
    """The trainer that `trainer_for` chooses. Raises `ConfigError`."""
    name, reason = trainer_for(settings)
    if name == TRANSFORMERS and settings.gpu.tensor_parallel > 1:
        raise ConfigError(
            f"tensor_parallel = {settings.gpu.tensor_parallel}, but model = {settings.engine.model!r} has the "
            f"transformers trainer, which works on one GPU ({reason}): leave tensor_parallel out"
        )
    path, extra = _CREATE[name]
    trainer: Trainer = resolve(path, extra=extra)(settings)
    placement = inherited_placement()
    if placement is not None and placement.train and placement.sharing == "alternating":
        return cast("Trainer", resolve(_ALTERNATING)(trainer, resolve(_ENGINE)(settings)))
    return trainer


def launch(settings: Settings) -> int | None:
    """Start the processes of a trainer that has several (`trainer_local.megatron.launch.launch`); `None` for others."""
    if trainer_for(settings)[0] == TRANSFORMERS:
        return None
    return cast("int | None", resolve(_LAUNCH, extra="gpu")(settings))


def trainer_for(settings: Settings) -> tuple[str, str]:
    """The trainer's name (`megatron`, `transformers`) and the reason for it. Raises `ConfigError` for a
    model whose configuration cannot be read.
    """
    if settings.engine.backend == "embedded":
        return TRANSFORMERS, "has the transformers trainer like every model under backend = embedded"
    why_not = why_not_megatron(model_config(Path(settings.engine.model_folder)))
    if why_not:
        return TRANSFORMERS, why_not
    return MEGATRON, "is of Qwen3's text family"


def describe(settings: Settings) -> str:
    """Trainer and engine of a policy that is trained here, for people. Raises `ConfigError`."""
    name, reason = trainer_for(settings)
    config = model_config(Path(settings.engine.model_folder))
    family = FAMILIES.get(MODEL_TYPES.get(str(config.get("model_type")), ""))
    sees = "; images are trained on" if family and family.images and "vision_config" in config else ""
    if settings.engine.backend == "embedded":
        return f"{name}, on device {settings.engine.device}{sees}"
    full_weights = serves_full_weights(settings)
    how = f"full weights of one version at a time: {full_weights}" if full_weights else "an adapter for each version"
    return f"{name}: the model {reason}{sees}; SGLang serves {how}"


def caveats(settings: Settings) -> list[str]:
    """The parts of this policy that a LoRA does not reach, for people. Raises `ConfigError`."""
    if not settings.learning.lora:
        return []
    found = []
    if trainer_for(settings)[0] == TRANSFORMERS and _has_experts(model_config(Path(settings.engine.model_folder))):
        found.append(
            "the model has experts, and the transformers trainer gives them no adapter: they stay untrained, and only "
            "the other layers learn"
        )
    if settings.engine.backend != "embedded" and serves_full_weights(settings):
        found.append(
            "each version is the adapter merged into the weights, which are rounded for SGLang. In bfloat16 a change "
            "of less than 1/512 of a weight is lost, so small steps show only after several"
        )
    return found


def serves_full_weights(settings: Settings) -> str:
    """The reason why SGLang gets each version's full weights instead of adapters; "" where it gets adapters,
    as always from Megatron-core.
    """
    if not settings.learning.lora:
        return "all weights are trained (lora = false)"
    config = _config(settings)
    kind = str(config.get("model_type"))
    if not why_not_megatron(config):
        return ""
    if "_moe" in kind:
        return f"adapters of a {kind} are not known to fit SGLang's experts"
    known = {*_PROJECTIONS, *(_DELTA_NET if kind in _HYBRIDS else ())}
    wanted = _targets(settings, kind)
    if unknown := sorted(wanted - known):
        return f"lora_targets names {', '.join(unknown)}, where SGLang takes no adapters"
    if missing := lacking(wanted):
        return f"lora_targets lacks {', '.join(missing)}, which SGLang computes in one with what it names"
    return ""


def lacking(targets: Collection[str], kind: str = "") -> list[str]:
    """The layers that an adapter of `targets` lacks, since SGLang computes them in one with those. Of experts (`kind`
    `qwen3_moe`) it takes adapters of all three projections or of none.
    """
    needed = set().union(*(_NEEDS.get(name, set()) for name in targets))
    if kind == "qwen3_moe" and _EXPERTS & set(targets):
        needed |= _EXPERTS
    return sorted(needed - set(targets))


def sglang_targets(settings: Settings) -> list[str]:
    """SGLang's `--lora-target-modules` for `lora_targets`: `all` where it has no names for them."""
    wanted = _targets(settings, str(_config(settings).get("model_type")))
    if wanted & {*_DELTA_NET}:
        return ["all"]
    return [name for name in _PROJECTIONS if name in wanted] + sorted(wanted - {*_PROJECTIONS})


def adapts_experts(settings: Settings) -> bool:
    """True for a model with experts whose adapters SGLang takes."""
    return str(_config(settings).get("model_type")) == "qwen3_moe"


def sglang_variables(settings: Settings) -> dict[str, str]:
    """Environment variables for SGLang. It (0.5.23) keeps cached image features when weights change, so a trained
    vision encoder turns that cache off.
    """
    named = _targets(settings, "") - {*_PROJECTIONS, *_DELTA_NET}
    trained = named if settings.learning.lora else settings.learning.train_vision
    return {"SGLANG_VLM_CACHE_SIZE_MB": "0"} if trained and "vision_config" in _config(settings) else {}


def adapter_folder(path: str) -> str:
    """Folder of the adapter that SGLang loads, inside that of a version."""
    own = Path(path) / FOR_SGLANG
    return str(own) if own.is_dir() else path


def _config(settings: Settings) -> Mapping[str, Any]:
    """The model's configuration; empty where another machine has it."""
    folder = Path(settings.engine.model_folder)
    return model_config(folder) if (folder / "config.json").is_file() else {}


def _has_experts(config: Mapping[str, Any]) -> bool:
    """True for a number of experts, under whatever name; one alone is a dense layer."""
    text = config.get("text_config") or config
    return any("experts" in name and isinstance(value, int) and value > 1 for name, value in text.items())


def _targets(settings: Settings, kind: str) -> set[str]:
    named = settings.learning.lora_targets.strip()
    if named == "all-linear":
        return {*_PROJECTIONS, *(_DELTA_NET if kind in _HYBRIDS else ())}
    return {name.strip() for name in named.split(",") if name.strip()}
