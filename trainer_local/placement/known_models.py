"""The config.json of models with images that may be asked about before they are downloaded: what it says about their
size, and no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

QWEN3_VL: Mapping[str, tuple[int, int, int, int, bool]] = {
    "Qwen/Qwen3-VL-2B-Instruct": (28, 2048, 16, 6144, True),
    "Qwen/Qwen3-VL-4B-Instruct": (36, 2560, 32, 9728, True),
    "Qwen/Qwen3-VL-8B-Instruct": (36, 4096, 32, 12288, False),
}
"""Layers, hidden size, heads, feed-forward width and whether embeddings are tied."""

QWEN3_5: Mapping[str, tuple[int, int, int, int, int, bool]] = {
    "Qwen/Qwen3.5-0.8B": (24, 1024, 8, 3584, 16, True),
    "Qwen/Qwen3.5-2B": (24, 2048, 8, 6144, 16, True),
    "Qwen/Qwen3.5-4B": (32, 2560, 16, 9216, 32, True),
    "Qwen/Qwen3.5-9B": (32, 4096, 16, 12288, 32, False),
}
"""The same, with the value heads of a gated delta net before the last."""

_SMALLEST, _SMALL, _LARGE = (12, 768, 3072), (24, 1024, 4096), (27, 1152, 4304)
"""Vision encoders: layers, hidden size, feed-forward width."""


def known_config(model: str) -> dict[str, Any] | None:
    """What is known of the config.json of a hub name."""
    if model in QWEN3_VL:
        return _qwen3_vl(*QWEN3_VL[model])
    if model in QWEN3_5:
        return _qwen3_5(*QWEN3_5[model])
    return None


def _qwen3_vl(layers: int, hidden: int, heads: int, feed_forward: int, tied: bool) -> dict[str, Any]:
    text = {
        "model_type": "qwen3_vl_text",
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151936,
        **_text(layers, hidden, heads, feed_forward, tied),
    }
    vision = {**_vision(hidden, _SMALL if hidden < 4096 else _LARGE), "deepstack_visual_indexes": [5, 11, 17]}
    return {"model_type": "qwen3_vl", "text_config": text, "vision_config": vision, "tie_word_embeddings": tied}


def _qwen3_5(layers: int, hidden: int, heads: int, feed_forward: int, values: int, tied: bool) -> dict[str, Any]:
    text = {
        "model_type": "qwen3_5_text",
        "num_key_value_heads": heads // 4,
        "head_dim": 256,
        "vocab_size": 248320,
        "full_attention_interval": 4,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": values,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        **_text(layers, hidden, heads, feed_forward, tied),
    }
    vision = _vision(hidden, _SMALLEST if hidden == 1024 else _SMALL if hidden < 4096 else _LARGE)
    return {"model_type": "qwen3_5", "text_config": text, "vision_config": vision, "tie_word_embeddings": tied}


def _text(layers: int, hidden: int, heads: int, feed_forward: int, tied: bool) -> dict[str, Any]:
    return {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "intermediate_size": feed_forward,
        "max_position_embeddings": 262144,
        "tie_word_embeddings": tied,
    }


def _vision(out: int, encoder: tuple[int, int, int]) -> dict[str, Any]:
    layers, hidden, feed_forward = encoder
    return {
        "depth": layers,
        "hidden_size": hidden,
        "intermediate_size": feed_forward,
        "out_hidden_size": out,
        "patch_size": 16,
        "temporal_patch_size": 2,
        "spatial_merge_size": 2,
        "num_position_embeddings": 2304,
    }
