"""Random models and samples for measurements of speed and equality."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from openclaw_rl.shared.records import Sample, VersionSpan


def write_qwen3(folder: Path, *, device: str = "cpu", dtype: torch.dtype = torch.float32, **shape: Any) -> Path:
    """Write a Qwen3 of this shape with random weights and without a tokenizer; returns the folder."""
    torch.manual_seed(0)
    with torch.device(device):
        model = Qwen3ForCausalLM(Qwen3Config(**shape)).to(dtype)
    model.save_pretrained(folder)
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
