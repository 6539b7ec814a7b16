"""A random causal language model of a few thousand parameters, and samples for it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from openclaw_rl.shared.records import Sample, VersionSpan
from openclaw_rl.shared.settings.settings import Settings

VOCABULARY = 48


def write_policy(folder: Path, **changes: Any) -> Path:
    """Write a Qwen3 folder with random weights and a tokenizer of single words."""
    torch.manual_seed(7)
    shape: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": True,
    }
    Qwen3ForCausalLM(Qwen3Config(**(shape | changes))).save_pretrained(folder)
    words = Tokenizer(models.WordLevel({f"w{index}": index for index in range(VOCABULARY)}, unk_token="w0"))
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token="w1").save_pretrained(folder)
    return folder


def write_experts(folder: Path, **changes: Any) -> Path:
    """The same with a mixture of four experts in every layer, two for each token."""
    write_policy(folder)  # for its tokenizer
    torch.manual_seed(7)
    shape: dict[str, Any] = {
        **{"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "moe_intermediate_size": 24},
        **{"num_experts": 4, "num_experts_per_tok": 2, "norm_topk_prob": True, "num_hidden_layers": 2},
        **{"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 4096},
        "initializer_range": 0.3,
    }
    Qwen3MoeForCausalLM(Qwen3MoeConfig(**(shape | changes))).save_pretrained(folder)
    return folder


def with_adapters(policy: Path, adapter: Mapping[str, Tensor], scale: float) -> tuple[Any, dict[str, Tensor]]:
    """A mixture in transformers, and its weights as sums with the tensors of `adapter` (by PEFT's names), which can be
    differentiated through them.
    """
    model = AutoModelForCausalLM.from_pretrained(policy, dtype=torch.float32).eval()

    def change(module: str) -> Tensor:
        down, up = (adapter[f"base_model.model.{module}.{side}.default.weight"] for side in ("lora_A", "lora_B"))
        return scale * up @ down

    found: dict[str, Tensor] = {}
    for name, weight in model.named_parameters():
        place = name.removesuffix(".gate_up_proj").removesuffix(".down_proj")
        if name.endswith("experts.gate_up_proj"):
            both = [
                torch.cat([change(f"{place}.{expert}.{one}_proj") for one in ("gate", "up")])
                for expert in range(len(weight))
            ]
            found[name] = weight + torch.stack(both)
        elif name.endswith("experts.down_proj"):
            found[name] = weight + torch.stack([change(f"{place}.{expert}.down_proj") for expert in range(len(weight))])
        elif name.endswith("_proj.weight"):
            found[name] = weight + change(name.removesuffix(".weight"))
    return model, found


def settings(model: Path, **changes: Any) -> Settings:
    """Settings that train `model` on the CPU."""
    return Settings(**({"model": str(model), "device": "cpu", "lora_rank": 4, "lora_alpha": 8.0} | changes))


def sample(seed: int, *, prompt: int = 6, response: int = 4, hints: int = 2, **changes: Any) -> Sample:
    """A turn with `hints` hinted prompts, all tokens drawn at random from `seed`."""
    draw = random.Random(seed)

    def tokens(count: int) -> list[int]:
        return [draw.randrange(2, VOCABULARY) for _ in range(count)]

    prompt_ids = tokens(prompt)
    fields: dict[str, Any] = {
        "sample_id": f"sample_{seed}",
        "turn_id": f"turn_{seed}",
        "policy": "policy",
        "origin": "turn",
        "prompt_ids": prompt_ids,
        "response_ids": tokens(response),
        "logprobs": [-3.0 - draw.random() for _ in range(response)],
        "versions": [VersionSpan(0, 0, response)],
        "hinted_prompts": [[*prompt_ids, *tokens(3)] for _ in range(hints)],
    }
    return Sample(**(fields | changes))


def anchor(seed: int) -> Sample:
    """An anchor: no hints, kept where the base is."""
    return sample(seed, hints=0, origin="anchor", turn_id=None, sample_id=f"anchor_{seed}")
