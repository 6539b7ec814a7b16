"""The memory that the Megatron-core trainer keeps of a forward pass, as autograd counts it, matches the placement's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_local.placement import memory
from openclaw_rl.trainer_local.placement.model_shape import shape_of
from tests.processes import ROOT

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]
pytest.importorskip("megatron.core", reason="test_megatron.py runs this where Megatron-core is")

CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

TINY: dict[str, Any] = {
    **{"model_type": "qwen3", "hidden_size": 96, "intermediate_size": 160, "num_attention_heads": 6},
    **{"num_key_value_heads": 2, "head_dim": 16, "vocab_size": 64},
}
EXPERTS: dict[str, Any] = {
    **TINY,
    **{"model_type": "qwen3_moe", "num_experts": 5, "num_experts_per_tok": 3, "moe_intermediate_size": 40},
}
TOKENS = 192

# In a process of its own: Megatron-core's groups belong to a process.
COUNT = """
import json, sys
import torch
from openclaw_rl.shared.settings.settings import Settings
from tests.shared.saved_tensors import saved_bytes
from openclaw_rl.trainer_local.training.attention_kernels import attention_kernels
from openclaw_rl.trainer_local.training.batching import row
from openclaw_rl.trainer_local.megatron.process_group import join
from openclaw_rl.trainer_local.megatron.weights import RankWeights
from openclaw_rl.trainer_local.prefix.tree import pack

group = join()
device, tokens, kinds, folders = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3]), sys.argv[4:]
group.arrange(1, torch.device(device))
found = {}
for lora in kinds:
    for folder in folders:
        weights = RankWeights(Settings(model=folder, lora=lora, lora_rank=4, device=device), group, torch.bfloat16)
        weights.model.train()
        (packed,) = pack([row([1] * (tokens - 1), [2, 3])], 2 * tokens)
        own = [*weights.model.parameters(), *weights.model.buffers()]
        with weights.model.packing(packed), attention_kernels(group.device):
            found.setdefault(str(lora), []).append(saved_bytes(lambda: weights.model.hidden(packed), own))
print(json.dumps(found))
"""


ON_A_CPU = {
    ("megatron", True): memory.Saved(12, 10, 10, 10),
    ("megatron", False): memory.Saved(20, 14, 14, 10),
}
"""Without fused kernels, by trainer and `lora`: what the placement had if its GPUs were CPUs."""


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=CUDA)])
@pytest.mark.parametrize(("model", "kinds"), [(TINY, [True, False]), (EXPERTS, [True])], ids=["dense", "experts"])
def test_activations_are_what_autograd_keeps_in_megatron(
    model: dict[str, Any], kinds: list[bool], device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if device == "cpu":
        monkeypatch.setattr(memory, "SAVED", ON_A_CPU)
    folders = []
    for layers in (2, 3):
        folders.append(str(tmp_path / str(layers)))
        config = AutoConfig.for_model(**model, num_hidden_layers=layers)
        AutoModelForCausalLM.from_config(config).save_pretrained(folders[-1])
    counted = subprocess.run(
        [sys.executable, "-c", COUNT, device, str(TOKENS), json.dumps(kinds), *folders],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    kept = json.loads(counted.stdout.splitlines()[-1])
    for lora in kinds:
        sizes = {"lora_rank": 4, "micro_batch_tokens": TOKENS, "max_sample_tokens": TOKENS}
        settings = Settings.model_validate({"lora": lora, "recompute": False, **sizes})
        shapes = [shape_of({**model, "num_hidden_layers": layers}) for layers in (2, 3)]
        fewer, more = (memory.activations(settings, shape, "megatron", 1) for shape in shapes)
        # Copies of the experts' adapters in bfloat16 are kept too; the plan leaves them out, as they do not grow with
        # tokens.
        experts = model.get("num_experts", 0) * 3 * 4 * (model["hidden_size"] + model.get("moe_intermediate_size", 0))
        apart = 2 * experts if lora else 0
        assert kept[str(lora)][1] - kept[str(lora)][0] == pytest.approx(
            more - fewer + apart, rel=1e-9 if device == "cpu" else 0.02
        )
