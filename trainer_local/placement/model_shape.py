"""A model's shape from its config.json: layers, linear projections, parameters, memory of a token. Of the weights only
the headers of safetensors files are read (github.com/huggingface/safetensors, "Format").

Exact for dense Qwen3, Qwen3.5 and Qwen3-VL, and for Llama, Mistral, Qwen2 and the like (`EXACT`). For any other model
the headers give the number of parameters; without them it is an estimate.
"""

from __future__ import annotations

import json
import math
import struct
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec

from openclaw_rl.shared.errors import ConfigError

MAX_HEADER_BYTES = 100 << 20
EXACT = frozenset(
    ["qwen3", "qwen3_5", "qwen3_5_text", "qwen3_vl", "qwen3_vl_text", "qwen3_moe", "qwen2", "llama", "mistral"]
)
_GATED = ("qwen3_5", "qwen3_next")
"""Families whose attention output has a gate, made by the query projection."""
_NORMED = ("qwen3", "qwen3_5", "qwen3_vl", "qwen3_next", "qwen3_moe")
"""Families that normalize queries and keys."""


class _Tensor(msgspec.Struct):
    shape: list[int]


class Projection(msgspec.Struct, frozen=True):
    """`count` linear layers called `name`, each from `inside` to `outside` numbers. Tensor parallelism cuts `outside`
    (column parallel) or `inside` (row parallel).
    """

    name: str
    inside: int
    outside: int
    count: int
    cut: Literal["outside", "inside"] = "outside"
    bias: bool = False

    @property
    def parameters(self) -> int:
        """Parameters of all of them."""
        return self.count * (self.inside * self.outside + self.outside * self.bias)


class ModelShape(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of a model, in numbers unless bytes are named."""

    family: str
    layers: int
    hidden: int
    heads: int
    groups: int
    """Key-value heads."""
    head: int
    """Size of one head."""
    feed_forward: int
    """Width of the feed-forward layer, or of an expert where there are `experts`."""
    vocabulary: int
    tied: bool
    context: int
    projections: tuple[Projection, ...]
    cached_layers: int
    """Layers that keep keys and values of every token."""
    state_bytes: int = 0
    """What the other layers of a hybrid model keep of a sequence of any length."""
    experts: int = 0
    chosen: int = 1
    """Experts of each layer, and those that each token goes through, of a model that Megatron-core trains here; 0 and 1
    for any other.
    """
    other: int = 0
    """Parameters of the language model in neither embeddings nor projections."""
    vision: int = 0
    """Parameters of the vision encoder."""
    stored: int = 0
    stored_bytes: int = 0
    """Parameters and bytes in the files, 0 where there are none."""
    quantization: str = ""
    """Method that the files are quantized by."""
    why_not_megatron: str = ""
    """Reason why `trainer_local.megatron` cannot train it; "" if it can."""

    @property
    def embeddings(self) -> int:
        """Parameters of embeddings and output head; one matrix where they are tied."""
        return self.vocabulary * self.hidden * (1 if self.tied else 2)

    @property
    def projected(self) -> int:
        """Parameters of the projections, which tensor parallelism cuts and quantization makes smaller."""
        return sum(one.parameters for one in self.projections)

    @property
    def language(self) -> int:
        """Parameters of the language model, which full training trains."""
        return self.parameters - self.vision

    @property
    def parameters(self) -> int:
        """All parameters."""
        if self.family not in EXACT and self.stored and not self.quantization:
            return self.stored
        return self.embeddings + self.projected + self.other + self.vision

    def adapter(self, rank: int, targets: str = "all-linear", tensor_parallel: int = 1) -> int:
        """Parameters of a LoRA on one of `tensor_parallel` GPUs: A `[rank, inside]` and B `[outside, rank]` of each
        projection, cut on the side where the projection is (`trainer_local.megatron.lora`).
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
    """The shape of a folder, or of a hub name that is known or was downloaded; `None` if it is unknown. Raises
    `ConfigError` for a config.json that cannot be read.
    """
    folder: Path | None = Path(model).expanduser()
    if folder is not None and not folder.is_dir():
        for family in ("qwen3", "qwen3_vl", "qwen3_5"):
            if config := known_models(family).get(model):
                return shape_of(config)
        folder = _downloaded(model)
    if folder is None or not (folder / "config.json").exists():
        return None
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{folder / 'config.json'} cannot be read: {error}; name a complete model folder") from error
    if not isinstance(config, dict):
        raise ConfigError(f"{folder / 'config.json'} is not a JSON object; name a complete model folder")
    try:
        shape = shape_of(config)
    except (AttributeError, KeyError, TypeError, ValueError, ZeroDivisionError):
        return None  # an architecture that is described otherwise
    try:
        stored = sum(math.prod(size) for size in tensor_shapes(folder).values())
    except (OSError, ValueError):
        return shape
    size = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    return msgspec.structs.replace(shape, stored=stored, stored_bytes=size)


@cache
def known_models(family: str) -> Mapping[str, Mapping[str, Any]]:
    """The sizes in config.json of the models of a family (`qwen3`, `qwen3_vl`, `qwen3_5`), by hub name."""
    table = tomllib.loads(Path(__file__).with_name("known_models.toml").read_text("utf-8"))
    configs = {}
    for name, sizes in table[family]["models"].items():
        config = {"model_type": family, **table[family]["common"], **sizes}
        if encoder := config.pop("vision", ""):
            vision = {**table["vision"]["common"], **table["vision"]["models"][encoder], **table[family]["vision"]}
            config = {
                "model_type": family,
                "text_config": config | {"model_type": f"{family}_text"},
                "vision_config": vision | {"out_hidden_size": config["hidden_size"]},
                "tie_word_embeddings": config["tie_word_embeddings"],
            }
        configs[name] = config
    return configs


def shape_of(config: Mapping[str, Any]) -> ModelShape:
    """The shape that a config.json describes. Raises `KeyError` and the like for one that describes no transformer."""
    text: Mapping[str, Any] = config.get("text_config") or config
    family = str(config.get("model_type", ""))
    hidden, layers = int(text["hidden_size"]), int(text["num_hidden_layers"])
    heads = int(text["num_attention_heads"])
    groups = int(text.get("num_key_value_heads") or heads)
    head = int(text.get("head_dim") or hidden // heads)
    feed_forward, wide = int(text["intermediate_size"]), heads * head
    linear, mixed = _linear_layers(text, layers), _mixture_layers(text, layers)
    attending, dense = layers - linear, layers - mixed
    experts, chosen = 0, 1
    if mixed and not why_not_megatron(config):
        experts, chosen = _count_experts(text), int(text.get("num_experts_per_tok") or 8)
        feed_forward, dense = int(text["moe_intermediate_size"]), layers * experts
    bias = bool(text.get("attention_bias", family in ("qwen2", "qwen2_5_vl")))
    queries = 2 * wide if family.startswith(_GATED) else wide
    projections = [
        Projection("q_proj", hidden, queries, attending, bias=bias),
        Projection("k_proj", hidden, groups * head, attending, bias=bias),
        Projection("v_proj", hidden, groups * head, attending, bias=bias),
        Projection("o_proj", wide, hidden, attending, "inside", bias=bias and not family.startswith("qwen2")),
        Projection("gate_proj", hidden, feed_forward, dense),
        Projection("up_proj", hidden, feed_forward, dense),
        Projection("down_proj", feed_forward, hidden, dense, "inside"),
    ]
    other = (2 * layers + 1) * hidden + (2 * head * attending if family.startswith(_NORMED) else 0)
    state_bytes = 0
    if linear:
        more, small, state_bytes = _linear_attention(text, hidden, linear)
        projections += more
        other += small
    if experts:
        other += layers * experts * hidden  # the routers
    elif mixed:
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
        cached_layers=attending,
        state_bytes=state_bytes,
        experts=experts,
        chosen=chosen,
        other=other,
        vision=_vision(config.get("vision_config"), family),
        quantization=str((config.get("quantization_config") or {}).get("quant_method") or ""),
        why_not_megatron=why_not_megatron(config),
    )


def _linear_layers(text: Mapping[str, Any], layers: int) -> int:
    """The number of layers with linear attention."""
    kinds = text.get("layer_types")
    if kinds:
        return sum(kind == "linear_attention" for kind in kinds)
    if "linear_num_value_heads" not in text:
        return 0
    every = int(text.get("full_attention_interval") or 4)
    return layers - layers // every


def _linear_attention(text: Mapping[str, Any], hidden: int, layers: int) -> tuple[list[Projection], int, int]:
    """Projections, other parameters and bytes kept of a sequence by Gated DeltaNet (arXiv 2412.06464) as in Qwen3.5: a
    matrix for each head in single precision, and the last inputs of its convolution.
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


def _count_experts(text: Mapping[str, Any]) -> int:
    """Experts of a layer; transformers 5 calls `num_local_experts` what files call `num_experts`."""
    return int(text.get("num_experts") or text.get("num_local_experts") or 0)


def _mixture_layers(text: Mapping[str, Any], layers: int) -> int:
    """The number of layers with experts."""
    if not _count_experts(text):
        return 0
    every = int(text.get("decoder_sparse_step") or 1)
    plain = set(text.get("mlp_only_layers") or ())
    return sum((layer + 1) % every == 0 and layer not in plain for layer in range(layers))


def _experts(text: Mapping[str, Any], hidden: int) -> int:
    """Parameters of a layer's experts and their router."""
    experts = _count_experts(text)
    width = int(text.get("moe_intermediate_size") or text["intermediate_size"])
    return experts * (3 * hidden * width + hidden)


def _vision(vision: Mapping[str, Any] | None, family: str) -> int:
    """Parameters of a vision encoder as in Qwen3-VL and Qwen3.5; 0 for any other."""
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
    """The reason why `trainer_local.megatron` cannot train a model of this config.json; "" if it can."""
    kind = config.get("model_type")
    if kind not in ("qwen3", "qwen3_moe"):
        return f"is {kind or 'of no known family'}, and Megatron-core trains models of Qwen3's text family here"
    layers = int(config.get("num_hidden_layers") or 0)
    if kind == "qwen3_moe" and _mixture_layers(config, layers) < layers:
        return "has layers with experts and layers without"
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


def tensor_shapes(folder: Path) -> Mapping[str, Sequence[int]]:
    """Each tensor's shape by its name. Raises `OSError` or `ValueError` for files that are none."""
    found: dict[str, Sequence[int]] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with file.open("rb") as content:
            try:
                (length,) = struct.unpack("<Q", content.read(8))
                if length > MAX_HEADER_BYTES:
                    raise ValueError(f"a header of {length} bytes")
                header = msgspec.json.decode(content.read(length), type=dict[str, msgspec.Raw])
                header.pop("__metadata__", None)
                tensors = {name: msgspec.json.decode(raw, type=_Tensor).shape for name, raw in header.items()}
            except (struct.error, ValueError, msgspec.DecodeError) as error:
                raise ValueError(f"{file} is no safetensors file: {error}") from error
        found |= tensors
    return found


def _downloaded(model: str) -> Path | None:
    """The folder of the hub's cache with a hub name's config.json."""
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
