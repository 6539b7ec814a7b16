"""The trainer of a model, and the transfer of its versions to SGLang."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_local import backend
from openclaw_rl.trainer_local.backend import (
    adapter_folder,
    caveats,
    describe,
    serves_full_weights,
    sglang_targets,
    sglang_variables,
    trainer_for,
)
from tests.shared.tiny_vision import vision_folder

QWEN3 = {"model_type": "qwen3", "hidden_act": "silu", "max_position_embeddings": 4096}
MOE = {"model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 2, "num_hidden_layers": 2}


def model(folder: Path, **config: Any) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def on_gpus(folder: str, **changes: Any) -> Settings:
    return Settings(**{"backend": "megatron", "model": folder, **changes})


def test_megatron_trains_qwen3_with_experts_whose_adapters_sglang_takes(tmp_path: Path) -> None:
    folder = model(tmp_path, **(QWEN3 | MOE))
    assert trainer_for(on_gpus(folder))[0] == "megatron"
    assert serves_full_weights(on_gpus(folder)) == ""
    assert "an adapter for each version" in describe(on_gpus(folder))


def test_megatron_trains_dense_qwen3(tmp_path: Path) -> None:
    assert trainer_for(on_gpus(model(tmp_path, **QWEN3)))[0] == "megatron"
    default = model(tmp_path, **QWEN3, rope_parameters={"rope_type": "default", "rope_theta": 1e6})
    assert trainer_for(on_gpus(default))[0] == "megatron"


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"model_type": "qwen3_5"}, "qwen3_5"),
        ({"model_type": "qwen3_vl"}, "qwen3_vl"),
        ({**MOE, "mlp_only_layers": [1]}, "layers with experts and layers without"),
        ({**MOE, "quantization_config": {"quant_method": "fp8"}}, "quantized"),
        ({"model_type": "llama"}, "llama"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantized"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "yarn"),
        ({"use_sliding_window": True}, "sliding"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding"),
        ({"attention_bias": True}, "biases"),
    ],
)
def test_transformers_trains_whatever_megatron_does_not_and_it_says_why(
    tmp_path: Path, changes: dict[str, Any], word: str
) -> None:
    name, reason = trainer_for(on_gpus(model(tmp_path, **(QWEN3 | changes))))
    assert name == "transformers" and word in reason
    assert word in describe(on_gpus(str(tmp_path)))


def test_the_embedded_backend_has_the_transformers_trainer(tmp_path: Path) -> None:
    settings = Settings(model=model(tmp_path, **QWEN3))
    assert trainer_for(settings)[0] == "transformers"
    assert describe(settings) == "transformers, on device auto"


def test_models_that_see_are_trained_on_images_and_served_by_adapters(tmp_path: Path) -> None:
    for kind in ("qwen3_vl", "qwen3_5"):
        line = describe(on_gpus(str(vision_folder(tmp_path / kind, model_type=kind))))
        assert line.startswith("transformers: ") and "images are trained on" in line and "an adapter for each" in line


@pytest.mark.parametrize(
    ("kind", "changes", "reason"),
    [
        ("qwen3_vl", {}, ""),
        ("qwen3_5", {}, ""),
        ("qwen3_vl", {"lora_targets": "q_proj,v_proj"}, ""),
        ("qwen3_vl", {"lora": False}, "lora = false"),
        ("qwen3_vl", {"lora_targets": "q_proj,v_proj,qkv"}, "qkv"),
        ("qwen3_vl", {"lora_targets": "q_proj"}, "v_proj"),
        ("qwen3_vl", {"lora_targets": "k_proj,down_proj"}, "q_proj, v_proj"),
        ("qwen3_vl", {"lora_targets": "in_proj_z,in_proj_qkv"}, "in_proj_qkv"),
        ("qwen3_5", {"lora_targets": "in_proj_z"}, "in_proj_qkv"),
        ("qwen3_5", {"lora_targets": "in_proj_a,q_proj,v_proj"}, "in_proj_a"),
        ("qwen3_5_moe", {}, "experts"),
    ],
)
def test_adapters_that_sglang_cannot_hold_are_served_whole_with_the_reason(
    tmp_path: Path, kind: str, changes: dict[str, Any], reason: str
) -> None:
    found = serves_full_weights(on_gpus(model(tmp_path, model_type=kind), **changes))
    assert reason in found and bool(found) == bool(reason)


def test_a_user_reads_what_an_adapter_does_not_reach(tmp_path: Path) -> None:
    def said(number: int, **changes: Any) -> list[str]:
        return caveats(on_gpus(folders[number], **changes))

    experts = {"model_type": "qwen3_5_moe", "text_config": {"num_experts": 128}}
    other = {"model_type": "ernie4_5_moe", "moe_num_experts": 64}
    dense = {"model_type": "hunyuan_v1_dense", "num_experts": 1, "n_routed_experts": None}
    kinds = (QWEN3, {"model_type": "gpt_oss", "num_local_experts": 32}, experts, other, dense)
    folders = [model(tmp_path / str(number), **kind) for number, kind in enumerate(kinds)]
    assert said(0) == said(0, lora_targets="q_proj,v_proj") == said(2, lora=False) == []
    (untrained,) = said(1)
    assert "experts" in untrained and "no adapter" in untrained
    (untrained_too, merged) = said(2)
    assert untrained_too == untrained and "merged into the weights" in merged and "1/512" in merged
    assert said(2, backend="embedded") == [untrained]
    assert said(3, backend="embedded") == [untrained] and said(4, backend="embedded") == []


def test_a_change_of_a_weight_below_half_a_step_of_bfloat16_is_lost() -> None:
    weight = torch.tensor(255 / 128).bfloat16()  # the next one is 2
    for size, lost in ((1 / 520, True), (1 / 250, False)):
        assert bool((weight.float() * (1 + size)).bfloat16() == weight) == lost


def test_sglang_gets_the_targets_in_its_own_words(tmp_path: Path) -> None:
    seven = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    assert sglang_targets(on_gpus(model(tmp_path, model_type="qwen3_vl"))) == seven
    assert sglang_targets(on_gpus(model(tmp_path, model_type="qwen3_5"))) == ["all"]
    assert sglang_targets(on_gpus(str(tmp_path), lora_targets="q_proj, v_proj")) == ["q_proj", "v_proj"]


def test_sglang_keeps_no_features_of_images_where_the_encoder_is_trained(tmp_path: Path) -> None:
    folder = str(vision_folder(tmp_path, model_type="qwen3_vl"))
    for changes in ({}, {"lora": False}, {"lora_targets": "q_proj,v_proj"}, {"train_vision": True}):
        assert sglang_variables(on_gpus(folder, **changes)) == {}
    for changes in ({"lora": False, "train_vision": True}, {"lora_targets": "q_proj,v_proj,qkv"}):
        assert sglang_variables(on_gpus(folder, **changes)) == {"SGLANG_VLM_CACHE_SIZE_MB": "0"}


def test_sglang_loads_the_adapter_of_its_own_names_where_there_is_one(tmp_path: Path) -> None:
    assert adapter_folder(str(tmp_path)) == str(tmp_path)
    (tmp_path / "sglang").mkdir()
    assert adapter_folder(str(tmp_path)) == str(tmp_path / "sglang")


def test_settings_of_megatron_alone_are_refused_with_the_reason(tmp_path: Path) -> None:
    folder = model(tmp_path, model_type="qwen3_5")
    with pytest.raises(ConfigError, match="is qwen3_5, and Megatron-core trains"):
        backend.create(on_gpus(folder, tensor_parallel=2))


def test_choosing_needs_no_torch(tmp_path: Path) -> None:
    folder = model(tmp_path, model_type="qwen3_5")
    code = (
        "import sys; from openclaw_rl.shared.settings.settings import Settings; "
        "from openclaw_rl.trainer_local.backend import describe; "
        f"describe(Settings(backend='megatron', model={folder!r})); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
