"""Adapters of all experts on the real SGLang: its routing, its names and buffers. On a CPU the rig computes the
products of experts from what SGLang loaded, since SGLang's kernels need a GPU.
"""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.func import functional_call

from tests.rigs.sglang_cpu import LORA, run_sglang
from tests.trainer_local.tiny import sample, with_adapters, write_experts

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

RANK, ALPHA = 4, 8.0
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def write_adapter(folder: Path) -> dict[str, Tensor]:
    """Write an adapter as `trainer_local.megatron` does; returns it by PEFT's names in its model."""
    draw = torch.Generator().manual_seed(3)
    sizes = {"q_proj": (32, 32), "k_proj": (32, 16), "v_proj": (32, 16), "o_proj": (32, 32)}
    experts = {"gate_proj": (32, 32), "up_proj": (32, 32), "down_proj": (32, 32)}
    found: dict[str, Tensor] = {}
    for layer in range(2):
        places = {f"self_attn.{name}": size for name, size in sizes.items()}
        places |= {f"mlp.experts.{expert}.{name}": size for expert in range(4) for name, size in experts.items()}
        for place, (inside, outside) in places.items():
            module = f"base_model.model.model.layers.{layer}.{place}"
            found[f"{module}.lora_A.default.weight"] = 0.1 * torch.randn(RANK, inside, generator=draw)
            found[f"{module}.lora_B.default.weight"] = 0.1 * torch.randn(outside, RANK, generator=draw)
    folder.mkdir()
    written = {name.replace(".default.", "."): part for name, part in found.items()}
    save_file(written, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "target_modules": TARGETS, "task_type": "CAUSAL_LM"}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return found


def test_an_adapter_of_every_expert_is_served_as_transformers_computes_it(tmp_path: Path) -> None:
    policy, folder = write_experts(tmp_path / "policy", moe_intermediate_size=32), tmp_path / "adapter"
    adapter = write_adapter(folder)
    ids = list(sample(5, prompt=24).prompt_ids)
    model, weights = with_adapters(policy, adapter, ALPHA / RANK)
    wanted: dict[str, Tensor] = {}
    with torch.no_grad():
        for name, changed in (("", {}), ("v1", weights)):
            rows = functional_call(model, changed, args=(torch.tensor([ids]),)).logits[0].log_softmax(dim=-1)
            wanted[name] = rows[:-1].gather(-1, torch.tensor(ids[1:])[:, None])[:, 0]
    assert float((wanted["v1"] - wanted[""]).abs().max()) > 0.1
    with run_sglang(policy, tmp_path, *LORA, "--lora-strict-loading", "--moe-runner-backend", "triton") as server:
        loaded = httpx.post(
            f"{server.url}/load_lora_adapter", json={"lora_name": "v1", "lora_path": str(folder)}, timeout=300
        )
        assert loaded.json()["success"], loaded.text
        for name, expected in wanted.items():
            asked = {
                **{"input_ids": ids, "return_logprob": True, "logprob_start_len": 0},
                **{"sampling_params": {"max_new_tokens": 1}, **({"lora_path": name} if name else {})},
            }
            answer = httpx.post(f"{server.url}/generate", json=asked, timeout=300).json()
            found = [entry[0] for entry in answer["meta_info"]["input_token_logprobs"]][1:]
            assert found == pytest.approx(expected.tolist(), abs=1e-4), name or "base"
