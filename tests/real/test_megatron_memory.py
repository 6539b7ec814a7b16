"""The memory that the Megatron-core trainer keeps of a forward pass, counted on a CPU, matches the placement's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig, AutoModelForCausalLM

from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_local.placement import memory
from openclaw_rl.trainer_local.placement.model_shape import shape_of
from tests.processes import ROOT

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]
pytest.importorskip("megatron.core", reason="test_megatron.py runs this where Megatron-core is")

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
from openclaw_rl.trainer_local.training.batching import row
from openclaw_rl.trainer_local.megatron.process_group import join
from openclaw_rl.trainer_local.megatron.weights import RankWeights
from openclaw_rl.trainer_local.prefix.tree import pack

group = join()
group.arrange(1, torch.device("cpu"))
tokens, kinds, folders = int(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3:]
found = {}
for lora in kinds:
    for folder in folders:
        weights = RankWeights(Settings(model=folder, lora=lora, lora_rank=4), group, torch.bfloat16)
        weights.model.train()
        (packed,) = pack([row([1] * (tokens - 1), [2, 3])], 2 * tokens)
        own = [*weights.model.parameters(), *weights.model.buffers()]
        with weights.model.packing(packed):
            found.setdefault(str(lora), []).append(saved_bytes(lambda: weights.model.hidden(packed), own))
print(json.dumps(found))
"""


@pytest.mark.parametrize(("model", "kinds"), [(TINY, [True, False]), (EXPERTS, [True])], ids=["dense", "experts"])
def test_activations_are_what_autograd_keeps_in_megatron(
    model: dict[str, Any], kinds: list[bool], tmp_path: Path
) -> None:
    folders = []
    for layers in (2, 3):
        folders.append(str(tmp_path / str(layers)))
        config = AutoConfig.for_model(**model, num_hidden_layers=layers)
        AutoModelForCausalLM.from_config(config).save_pretrained(folders[-1])
    counted = subprocess.run(
        [sys.executable, "-c", COUNT, str(TOKENS), json.dumps(kinds), *folders],
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
        # Copies of the adapters in bfloat16 are kept too; the plan leaves them out, as they do not grow with tokens.
        # Those of a fused layer are one block-diagonal matrix, with its zeros.
        adapter = shapes[1].adapter(4) - shapes[0].adapter(4)
        zeros = 2 * 4 * (6 + 2 + 2) * 16 + (0 if "num_experts" in model else 4 * 2 * 160)
        apart = 2 * (adapter + zeros) if lora else 0
        assert kept[str(lora)][1] - kept[str(lora)][0] == more - fewer + apart
