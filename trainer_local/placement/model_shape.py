"""What a model's config.json says about its size: layers, linear projections, parameters, what it keeps of a token. No
weights are read but for the headers of safetensors files (github.com/huggingface/safetensors, "Format").

Exact for dense Qwen3, Qwen3.5 and Qwen3-VL, and for Llama, Mistral, Qwen2 and their like (`EXACT`); for any other model
the headers of its weights give the number of parameters, and without them this is an estimate.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.trainer_local.placement.known_models import known_config

EXACT = frozenset(
    ["qwen3", "qwen3_5", "qwen3_5_text", "qwen3_vl", "qwen3_vl_text", "qwen3_moe", "qwen2", "llama", "mistral"]
)
_GATED = ("qwen3_5", "qwen3_next")
"""Families whose attention has a gate on its output, made by the query projection."""
_NORMED = ("qwen3", "qwen3_5", "qwen3_vl", "qwen3_next", "qwen3_moe")
"""Families that normalise queries and keys."""

QWEN3: Mapping[str, tuple[int, int, int, int, bool]] = {
    "Qwen/Qwen3-0.6B": (28, 1024, 16, 3072, True),
    "Qwen/Qwen3-1.7B": (28, 2048, 16, 6144, True),
    "Qwen/Qwen3-4B": (36, 2560, 32, 9728, True),
    "Qwen/Qwen3-8B": (36, 4096, 32, 12288, False),
    "Qwen/Qwen3-14B": (40, 5120, 40, 17408, False),
    "Qwen/Qwen3-32B": (64, 5120, 64, 25600, False),
}
"""Layers, hidden size, heads, feed-forward width and whether embeddings are tied, of models that may be asked about
before they are downloaded (Qwen3 Technical Report, arXiv 2505.09388, table 1, and their config.json).
"""


class Projection(msgspec.Struct, frozen=True):
    """`count` linear layers of the language model called `name`, each from `inside` to `outside` numbers. `cut` says
    which side tensor parallelism shares out: `outside` (column parallel) or `inside` (row parallel).
    """

    name: str
    inside: int
    outside: int
    count: int
    cut: Literal["outside", "inside"] = "outside"
    bias: bool = False

    @property
    def parameters(self) -> int:
        """Of all of them."""
        return self.count * (self.inside * self.outside + self.outside * self.bias)


class ModelShape(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes in numbers, not bytes. `groups` are key-value heads, `head` is the size of one head. `cached` layers keep
    keys and values of every token; the others of a hybrid model keep `state_bytes` for each sequence, whatever its
    length. `other` are the language model's parameters that are in neither embeddings nor projections, `seeing` those
    that look at images. `stored` and `stored_bytes` count what the files hold, 0 where there are none. `quantization`
    is the method that the files are quantized by.
    """

    family: str
    layers: int
    hidden: int
    heads: int
    groups: int
    head: int
    feed_forward: int
    vocabulary: int
    tied: bool
    context: int
    projections: tuple[Projection, ...]
    cached: int
    state_bytes: int = 0
    other: int = 0
    seeing: int = 0
    stored: int = 0
    stored_bytes: int = 0
    quantization: str = ""
    why_not_megatron: str = ""
    """Why `trainer_local.megatron` cannot train it, in words; "" if it can."""

    @property
    def embeddings(self) -> int:
        """Parameters of embeddings and output head; one matrix where they are tied."""
        return self.vocabulary * self.hidden * (1 if self.tied else 2)

    @property
    def projected(self) -> int:
        """Parameters of all linear projections: what tensor parallelism shares out and quantization makes smaller."""
        return sum(one.parameters for one in self.projections)

    @property
    def language(self) -> int:
        """Parameters of the language model: what full training trains."""
        return self.parameters - self.seeing

    @property
    def parameters(self) -> int:
        """All of them."""
        if self.family not in EXACT and self.stored and not self.quantization:
            return self.stored
        return self.embeddings + self.projected + self.other + self.seeing

    def adapter(self, rank: int, targets: str = "all-linear", tensor_parallel: int = 1) -> int:
        """Parameters of a LoRA of `rank` on one of `tensor_parallel` GPUs: A `[rank, inside]` and B `[outside, rank]`
        of each projection, the side next to a cut being cut with it (`trainer_local.megatron.lora`).
        """
        names = {name.strip().rpartition(".")[2] for name in targets.split(",")}
        numbers = 0
        for one in self.projections:
            if targets.strip() == "all-linear" or one.name in names:
                inside = one.inside // (tensor_parallel if one.cut == "inside" else 1)
                outside = one.outside // (tensor_parallel if one.cut == "outside" else 1)
                numbers += one.count * rank * (inside + outside)
        return numbers


def read_shape(model: str) -> ModelShape | None:
    """The shape of a folder, of a hub name whose config.json is known or was downloaded before; `None` where nothing is
    known. Raises `ConfigError` for a config.json that cannot be read.
    """
    folder = Path(model).expanduser()
    if not folder.is_dir():
        if model in QWEN3:
            return shape_of(qwen3_config(*QWEN3[model]))
        if (known := known_config(model)) is not None:
            return shape_of(known)
        cached = _cached(model)
        if cached is None:
            return None
        folder = cached
    file = folder / "config.json"
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} cannot be read: {error}; name a complete model folder") from error
    if not isinstance(config, dict):
        raise ConfigError(f"{file} is not a JSON object; name a complete model folder")
    try:
        shape = shape_of(config)
    except (AttributeError, KeyError, TypeError, ValueError, ZeroDivisionError):
        return None  # an architecture that is described otherwise
    stored, stored_bytes = _stored(folder)
    return msgspec.structs.replace(shape, stored=stored, stored_bytes=stored_bytes)


def qwen3_config(layers: int, hidden: int, heads: int, feed_forward: int, tied: bool) -> dict[str, Any]:
    """The config.json of a dense Qwen3 model, which all have 8 key-value heads of 128 numbers and one vocabulary."""
    return {
        "model_type": "qwen3",
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": feed_forward,
        "vocab_size": 151936,
        "tie_word_embeddings": tied,
        "max_position_embeddings": 40960,
        "hidden_act": "silu",
    }


def shape_of(config: Mapping[str, Any]) -> ModelShape:
    """The shape that a config.json describes. Raises `KeyError` and the like for one that describes no transformer."""
    text: Mapping[str, Any] = config.get("text_config") or config
    family = str(config.get("model_type", ""))
    hidden, layers = int(text["hidden_size"]), int(text["num_hidden_layers"])
    heads = int(text["num_attention_heads"])
    groups = int(text.get("num_key_value_heads") or heads)
    head = int(text.get("head_dim") or hidden // heads)
    feed_forward = int(text["intermediate_size"])
    linear = _linear_layers(text, layers)
    attending = layers - linear
    wide = heads * head
    bias = bool(text.get("attention_bias", family in ("qwen2", "qwen2_5_vl")))
    gated = family.startswith(_GATED)
    mixed = _mixtures(text, layers)
    projections = [
        Projection("q_proj", hidden, 2 * wide if gated else wide, attending, bias=bias),
        Projection("k_proj", hidden, groups * head, attending, bias=bias),
        Projection("v_proj", hidden, groups * head, attending, bias=bias),
        Projection("o_proj", wide, hidden, attending, "inside", bias=bias and not family.startswith("qwen2")),
        Projection("gate_proj", hidden, feed_forward, layers - mixed),
        Projection("up_proj", hidden, feed_forward, layers - mixed),
        Projection("down_proj", feed_forward, hidden, layers - mixed, "inside"),
    ]
    other = (2 * layers + 1) * hidden
    if family.startswith(_NORMED):
        other += 2 * head * attending
    state_bytes = 0
    if linear:
        more, small, state_bytes = _linear_attention(text, hidden, linear)
        projections += more
        other += small
    if mixed:
        other += mixed * _experts(text, hidden)
    return ModelShape(
        family=family,
        layers=layers,
        hidden=hidden,
        heads=heads,
        groups=groups,
        head=head,
        feed_forward=feed_forward,
        vocabulary=int(text["vocab_size"]),
        tied=bool(text.get("tie_word_embeddings", config.get("tie_word_embeddings", False))),
        context=int(text.get("max_position_embeddings") or 0),
        projections=tuple(one for one in projections if one.count),
        cached=attending,
        state_bytes=state_bytes,
        other=other,
        seeing=_seeing(config.get("vision_config"), family),
        quantization=str((config.get("quantization_config") or {}).get("quant_method") or ""),
        why_not_megatron=why_not_megatron(config),
    )


def _linear_layers(text: Mapping[str, Any], layers: int) -> int:
    """Layers with linear attention in place of the other kind."""
    kinds = text.get("layer_types")
    if kinds:
        return sum(kind == "linear_attention" for kind in kinds)
    if "linear_num_value_heads" not in text:
        return 0
    every = int(text.get("full_attention_interval") or 4)
    return layers - layers // every


def _linear_attention(text: Mapping[str, Any], hidden: int, layers: int) -> tuple[list[Projection], int, int]:
    """Gated DeltaNet (arXiv 2412.06464) as Qwen3.5 has it: its projections, its other parameters, and the bytes that it
    keeps of a sequence: a matrix a head in single precision, and the last inputs of its convolution.
    """
    keys, values = int(text["linear_num_key_heads"]), int(text["linear_num_value_heads"])
    key, value = int(text["linear_key_head_dim"]), int(text["linear_value_head_dim"])
    kernel = int(text.get("linear_conv_kernel_dim") or 4)
    mixed, out = 2 * keys * key + values * value, values * value
    projections = [
        Projection("in_proj_qkv", hidden, mixed, layers),
        Projection("in_proj_z", hidden, out, layers),
        Projection("out_proj", out, hidden, layers, "inside"),
    ]
    small = mixed * kernel + 2 * values + value + 2 * values * hidden  # in_proj_a and in_proj_b take no adapter
    return projections, layers * small, layers * (4 * values * key * value + 2 * mixed * (kernel - 1))


def _mixtures(text: Mapping[str, Any], layers: int) -> int:
    """Layers that have experts in place of one feed-forward part."""
    if not (text.get("num_experts") or text.get("num_local_experts")):
        return 0
    every = int(text.get("decoder_sparse_step") or 1)
    plain = set(text.get("mlp_only_layers") or ())
    return sum((layer + 1) % every == 0 and layer not in plain for layer in range(layers))


def _experts(text: Mapping[str, Any], hidden: int) -> int:
    """Parameters of the experts of a layer and of what chooses among them."""
    experts = int(text.get("num_experts") or text["num_local_experts"])
    width = int(text.get("moe_intermediate_size") or text["intermediate_size"])
    return experts * (3 * hidden * width + hidden)


def _seeing(vision: Mapping[str, Any] | None, family: str) -> int:
    """Parameters of a vision encoder as Qwen3-VL and Qwen3.5 have it; 0 for one that is described otherwise."""
    if not vision or not {"depth", "hidden_size", "intermediate_size", "out_hidden_size"} <= set(vision):
        return 0
    hidden, wide = int(vision["hidden_size"]), int(vision["intermediate_size"])
    out, merged = int(vision["out_hidden_size"]), hidden * int(vision.get("spatial_merge_size") or 2) ** 2
    patch = int(vision.get("in_channels") or 3) * int(vision.get("temporal_patch_size") or 2)
    patch *= int(vision.get("patch_size") or 16) ** 2
    block = 4 * hidden + 4 * hidden * hidden + 4 * hidden + 2 * hidden * wide + wide + hidden
    merger = merged * merged + merged + merged * out + out
    deep = len(vision.get("deepstack_visual_indexes") or ()) if family.startswith("qwen3_vl") else 0
    return (
        patch * hidden
        + hidden
        + int(vision.get("num_position_embeddings") or 0) * hidden
        + int(vision["depth"]) * block
        + merger
        + 2 * hidden
        + deep * (merger + 2 * merged)
    )


def why_not_megatron(config: Mapping[str, Any]) -> str:
    """Why a model of this config.json is no dense Qwen3 as `trainer_local.megatron` trains it, in words; "" if it is.
    Decided as in `trainer_local.megatron.shape`, from the file alone.
    """
    kind = config.get("model_type")
    if kind != "qwen3":
        return f"is {kind or 'of no known family'}, and Megatron-core trains dense Qwen3 models here"
    if config.get("quantization_config"):
        return "is quantized"
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default")) if isinstance(rope, Mapping) else rope
    if kind != "default":
        return f"stretches its positions ({kind})"
    if set(config.get("layer_types") or ()) - {"full_attention"} or config.get("use_sliding_window"):
        return "has layers with a sliding window"
    if config.get("attention_bias") or config.get("hidden_act", "silu") != "silu":
        return "has biases in its attention or another activation than silu"
    return ""


def _stored(folder: Path) -> tuple[int, int]:
    """How many numbers and bytes the weights in a folder have, by the headers of their files; 0 where there are none or
    one cannot be read.
    """
    numbers = size = 0
    for file in sorted(folder.glob("*.safetensors")):
        try:
            with file.open("rb") as opened:
                header = json.loads(opened.read(int.from_bytes(opened.read(8), "little")))
        except (OSError, ValueError, MemoryError):
            return 0, 0
        for name, tensor in header.items():
            if name != "__metadata__":
                numbers += math.prod(tensor["shape"])
                begin, end = tensor["data_offsets"]
                size += end - begin
    return numbers, size


def _cached(model: str) -> Path | None:
    """The folder of the hub's cache that has the config.json of a hub name."""
    try:
        from huggingface_hub import try_to_load_from_cache
        from huggingface_hub.errors import HFValidationError
    except ModuleNotFoundError:
        return None
    try:
        found = try_to_load_from_cache(model, "config.json")
    except (HFValidationError, OSError, ValueError):
        return None
    return Path(found).parent if isinstance(found, str) else None
