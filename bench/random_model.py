"""Random models and samples for measurements of speed and equality."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from openclaw_rl.shared.files import atomic_folder
from openclaw_rl.shared.records import Sample, VersionSpan
from openclaw_rl.shared.settings.settings import EMBEDDED_POLICY

SIZES: dict[str, dict[str, int]] = {
    "tiny": {"hidden": 64, "layers": 2, "heads": 4, "groups": 2, "head": 16, "wide": 192, "words": 512},
    "small": {"hidden": 256, "layers": 4, "heads": 8, "groups": 4, "head": 32, "wide": 768, "words": 4096},
    "0.6b": {"hidden": 1024, "layers": 28, "heads": 16, "groups": 8, "head": 128, "wide": 3072, "words": 151936},
    "4b": {"hidden": 2560, "layers": 36, "heads": 32, "groups": 8, "head": 128, "wide": 9728, "words": 151936},
    "8b": {"hidden": 4096, "layers": 36, "heads": 32, "groups": 8, "head": 128, "wide": 12288, "words": 151936},
}
"""Qwen3 models, all with tied embeddings."""

TOKENIZER = ("tokenizer.json", "tokenizer_config.json")


def qwen3_shape(size: str) -> dict[str, Any]:
    """The fields of `Qwen3Config` for a size."""
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim")
    fields: dict[str, Any] = dict(zip((*names, "intermediate_size", "vocab_size"), SIZES[size].values(), strict=True))
    rope = {"rope_type": "default", "rope_theta": 1_000_000.0}
    wide = 0.05 if fields["hidden_size"] < 1024 else 0.02  # small models need it for attention to matter
    fields |= {"max_position_embeddings": 40960, "tie_word_embeddings": True, "rope_parameters": rope}
    return fields | {"initializer_range": wide}


def write_qwen3(folder: Path, *, device: str = "cpu", dtype: torch.dtype = torch.float32, **shape: Any) -> Path:
    """Write a Qwen3 of this shape with random weights and without a tokenizer; returns the folder."""
    torch.manual_seed(0)
    with torch.device(device):
        model = Qwen3ForCausalLM(Qwen3Config(**shape)).to(dtype)
    model.save_pretrained(folder)
    return folder


def kept_qwen3(parent: Path, size: str, *, device: str = "cpu", dtype: torch.dtype = torch.float32) -> Path:
    """A random Qwen3 of this size below `parent`, written unless it is there. It has the tokenizer of the policy that
    ships, for engines that want one; tokens beyond it have no text.
    """
    folder = parent / f"{size}-{str(dtype).removeprefix('torch.')}"
    if not folder.is_dir():
        with atomic_folder(folder) as made:
            write_qwen3(made, device=device, dtype=dtype, **qwen3_shape(size))
            for name in TOKENIZER:
                shutil.copy(EMBEDDED_POLICY / name, made)
    return folder


def even_sample(name: str, prompt: Sequence[int], answer: Sequence[int], logprob: float, **fields: Any) -> Sample:
    """A turn of version 0 whose answer's tokens all have this logprob; `fields` are further ones of `Sample`."""
    return Sample(
        sample_id=name,
        policy="policy",
        prompt_ids=prompt,
        response_ids=answer,
        logprobs=[logprob] * len(answer),
        versions=[VersionSpan(0, 0, len(answer))],
        **{"turn_id": None, "origin": "turn", **fields},
    )
