"""A random causal language model of a few thousand parameters, and samples for it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

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
