from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, PreTrainedConfig

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.trainer_local.placement.model_shape import known_models, read_shape, shape_of

SMALL: dict[str, Any] = {
    **{"hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 5, "num_attention_heads": 6},
    **{"num_key_value_heads": 2, "head_dim": 32, "vocab_size": 300, "max_position_embeddings": 2048},
}
LINEAR = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 24,
}
VISION = {
    **{"depth": 3, "hidden_size": 48, "intermediate_size": 80, "num_heads": 2, "out_hidden_size": 96},
    **{"patch_size": 8, "temporal_patch_size": 2, "spatial_merge_size": 2, "num_position_embeddings": 64},
}
HALF_VISION = {**VISION, "deepstack_visual_indexes": [0, 2]}
CONFIGS: dict[str, dict[str, Any]] = {
    "qwen3": {"model_type": "qwen3", **SMALL, "tie_word_embeddings": False},
    "qwen3 tied": {"model_type": "qwen3", **SMALL, "tie_word_embeddings": True},
    "qwen3 with biases": {"model_type": "qwen3", **SMALL, "attention_bias": True},
    "qwen2": {"model_type": "qwen2", **SMALL, "head_dim": None, "tie_word_embeddings": True},
    "llama": {"model_type": "llama", **SMALL, "tie_word_embeddings": False},
    "mistral": {"model_type": "mistral", **SMALL, "tie_word_embeddings": False},
    "qwen3_moe": {
        "model_type": "qwen3_moe",
        **SMALL,
        "num_experts": 4,
        "moe_intermediate_size": 40,
        "mlp_only_layers": [1],
    },
    "qwen3_moe of experts alone": {
        "model_type": "qwen3_moe",
        **SMALL,
        **{"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 40, "mlp_only_layers": []},
    },
    "qwen3_5_text": {"model_type": "qwen3_5_text", **SMALL, **LINEAR, "tie_word_embeddings": True},
    "qwen3_5": {
        "model_type": "qwen3_5",
        "text_config": {"model_type": "qwen3_5_text", **SMALL, **LINEAR, "tie_word_embeddings": False},
        "vision_config": {"model_type": "qwen3_5_vision", **VISION},
        "tie_word_embeddings": False,
    },
    "qwen3_vl": {
        "model_type": "qwen3_vl",
        "text_config": {"model_type": "qwen3_vl_text", **SMALL, "tie_word_embeddings": True},
        "vision_config": {"model_type": "qwen3_vl_vision", **HALF_VISION},
        "tie_word_embeddings": True,
    },
}


def on_meta(config: PreTrainedConfig) -> torch.nn.Module:
    """Transformers' model of a config, without memory for its weights."""
    kind = AutoModelForImageTextToText if hasattr(config, "vision_config") else AutoModelForCausalLM
    with torch.device("meta"):
        model: torch.nn.Module = kind.from_config(config)
    return model


def transformers_config(config: dict[str, Any]) -> PreTrainedConfig:
    given = {name: value for name, value in config.items() if value is not None}
    made: PreTrainedConfig = AutoConfig.for_model(**given)
    return made


@pytest.mark.parametrize("name", CONFIGS)
def test_parameters_are_those_of_the_real_model(name: str) -> None:
    config = transformers_config(CONFIGS[name])
    real = on_meta(config)
    shape = shape_of(json.loads(json.dumps(config.to_dict())))
    assert shape.parameters == sum(part.numel() for part in real.parameters())
    seeing = sum(part.numel() for name, part in real.named_parameters() if ".visual." in name)
    assert shape.vision == seeing and shape.language == shape.parameters - seeing


@pytest.mark.parametrize("name", CONFIGS)
def test_a_plain_file_without_defaults_is_read_the_same(name: str) -> None:
    written = transformers_config(CONFIGS[name])
    full = shape_of(json.loads(json.dumps(written.to_dict())))
    assert shape_of(CONFIGS[name]).parameters == full.parameters


@pytest.mark.parametrize("model", ["Qwen/Qwen3-0.6B", "Qwen/Qwen3-8B", "Qwen/Qwen3-32B"])
def test_models_that_are_known_by_name_have_the_parameters_of_the_real_ones(model: str) -> None:
    shape = read_shape(model)
    assert shape is not None
    config = transformers_config(known_models("qwen3")[model])
    assert shape.parameters == sum(part.numel() for part in on_meta(config).parameters())


SEEING = known_models("qwen3_vl") | known_models("qwen3_5")


@pytest.mark.parametrize("model", SEEING)
def test_models_with_images_that_are_known_by_name_have_the_parameters_of_the_real_ones(model: str) -> None:
    shape, config = read_shape(model), SEEING[model]
    assert shape is not None and shape.why_not_megatron
    assert shape.parameters == sum(part.numel() for part in on_meta(transformers_config(config)).parameters())
    billions = {"0.8": 0.87, "2": 2.2, "4": 4.5, "8": 8.8, "9": 9.65}  # as published, Qwen3.5's with what guesses ahead
    (size,) = re.findall(r"-([\d.]+)B", model)
    assert shape.parameters / 1e9 == pytest.approx(billions[size], rel=0.05)


def test_sizes_in_names_are_sizes_of_models() -> None:
    billions = {model: shape.parameters / 1e9 for model in known_models("qwen3") if (shape := read_shape(model))}
    for model, size in billions.items():
        assert size == pytest.approx(float(model.rpartition("-")[2].removesuffix("B")), rel=0.06)


@pytest.mark.parametrize(
    ("name", "targets"), [("qwen3", "all-linear"), ("qwen3 tied", "q_proj, v_proj"), ("qwen3_5_text", "all-linear")]
)
def test_adapters_are_as_large_as_pefts(name: str, targets: str) -> None:
    real = on_meta(transformers_config(CONFIGS[name]))
    modules: Any = [part.strip() for part in targets.split(",")]
    if targets == "all-linear":
        # As the trainer reads it: a gate of a few numbers takes none.
        modules = [
            name
            for name, part in real.named_modules()
            if isinstance(part, torch.nn.Linear) and not name.endswith(("lm_head", "in_proj_a", "in_proj_b"))
        ]
    adapted = get_peft_model(real, LoraConfig(r=4, target_modules=modules, task_type="CAUSAL_LM"))
    trained = sum(part.numel() for part in adapted.parameters() if part.requires_grad)
    assert shape_of(CONFIGS[name]).adapter(4, targets) == trained


def test_an_adapter_is_cut_with_the_side_that_is_next_to_a_cut() -> None:
    shape = shape_of({**CONFIGS["qwen3"], "num_hidden_layers": 1})
    hidden, wide, keys, feed = 96, 192, 64, 160
    whole = 2 * (2 * hidden + wide + 2 * keys + hidden + wide + hidden)  # q, k, v, o …
    assert shape.adapter(2) == whole + 2 * (3 * hidden + 3 * feed)
    halves = 2 * (
        3 * hidden + (wide + 2 * keys) // 2 + wide // 2 + hidden + 2 * hidden + 2 * feed // 2 + feed // 2 + hidden
    )
    assert shape.adapter(2, tensor_parallel=2) == halves


def test_a_hybrid_model_keeps_keys_and_values_in_some_layers_only() -> None:
    shape = shape_of(CONFIGS["qwen3_5_text"])
    assert (shape.layers, shape.cached_layers) == (5, 1)
    assert shape.state_bytes == 4 * (4 * 4 * 16 * 24 + 2 * 3 * (2 * 2 * 16 + 4 * 24))
    assert shape_of(CONFIGS["qwen3"]).state_bytes == 0


def folder(path: Path, config: dict[str, Any], weights: dict[str, torch.Tensor] | None = None) -> str:
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    if weights:
        save_file(weights, path / "model.safetensors")
    return str(path)


def test_of_a_family_that_is_not_known_the_files_say_how_large_it_is(tmp_path: Path) -> None:
    config = {**CONFIGS["llama"], "model_type": "unheard-of"}
    weights = {"a": torch.zeros(30, 10, dtype=torch.bfloat16), "b": torch.zeros(7)}
    shape = read_shape(folder(tmp_path / "unknown", config, weights))
    assert shape is not None and shape.parameters == 307 and 628 < shape.stored_bytes < 1000
    known = read_shape(folder(tmp_path / "known", CONFIGS["llama"], weights))
    assert known is not None and known.parameters == shape_of(CONFIGS["llama"]).parameters


def test_an_unknown_shape_is_none_and_a_broken_config_is_refused(tmp_path: Path) -> None:
    assert read_shape("author/no-such-model") is None
    assert read_shape(str(tmp_path)) is None
    assert read_shape(folder(tmp_path / "else", {"model_type": "state-space"})) is None
    (tmp_path / "else" / "config.json").write_text("{")
    with pytest.raises(ConfigError, match=r"config.json cannot be read.*name a complete model folder"):
        read_shape(str(tmp_path / "else"))
    (tmp_path / "else" / "config.json").write_text("[]")
    with pytest.raises(ConfigError, match=r"config.json is not a JSON object; name a complete model folder"):
        read_shape(str(tmp_path / "else"))
    for part in ("text_config", "quantization_config"):
        assert read_shape(folder(tmp_path / part, {**CONFIGS["qwen3"], part: "nonsense"})) is None


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, ""),
        ({"model_type": "qwen3_5"}, "is qwen3_5"),
        ({"quantization_config": {"quant_method": "awq"}}, "is quantized"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4}}, "stretches its positions (yarn)"),
        ({"rope_parameters": "nonsense"}, "stretches its positions (nonsense)"),
        ({"use_sliding_window": True}, "sliding window"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding window"),
        ({"attention_bias": True}, "biases"),
        ({"hidden_act": "gelu"}, "another activation"),
        (CONFIGS["qwen3_moe of experts alone"], ""),
        (CONFIGS["qwen3_moe"], "layers with experts and layers without"),
        ({**CONFIGS["qwen3_moe of experts alone"], "decoder_sparse_step": 2}, "layers with experts and layers without"),
    ],
)
def test_the_trainer_of_a_model_is_read_from_its_config(changes: dict[str, Any], why: str) -> None:
    reason = shape_of({**CONFIGS["qwen3"], **changes}).why_not_megatron
    assert why in reason if why else not reason


def test_a_mixture_of_experts_has_an_adapter_in_every_expert() -> None:
    """The published sizes of Qwen3-30B-A3B: 30.5 billion parameters, 128 experts, 8 of them for each token."""
    config = {
        **{"model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768},
        **{"num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48, "num_attention_heads": 32},
        **{"num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936, "tie_word_embeddings": False},
    }
    shape = shape_of(config)
    assert shape.parameters == sum(part.numel() for part in on_meta(transformers_config(config)).parameters())
    assert shape.parameters / 1e9 == pytest.approx(30.5, rel=0.01)
    assert (shape.experts, shape.chosen, shape.feed_forward) == (128, 8, 768)
    experts = shape.adapter(4) - shape.adapter(4, "q_proj,k_proj,v_proj,o_proj")
    assert experts == 48 * 128 * 3 * 4 * (2048 + 768)
