"""Random models for measurements of speed and equality."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM


def write_qwen3(folder: Path, *, device: str = "cpu", dtype: torch.dtype = torch.float32, **shape: Any) -> Path:
    """Write a Qwen3 of this shape with random weights and without a tokenizer; returns the folder."""
    torch.manual_seed(0)
    with torch.device(device):
        model = Qwen3ForCausalLM(Qwen3Config(**shape)).to(dtype)
    model.save_pretrained(folder)
    return folder
