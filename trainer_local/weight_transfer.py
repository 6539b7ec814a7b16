"""How tensors get to an engine."""

from __future__ import annotations

import base64
import json
import pickle
from pathlib import Path
from typing import Any

from safetensors.torch import load_file


def adapter_payload(name: str, path: str, tp_size: int) -> dict[str, Any]:
    """The body of SGLang's `/load_lora_adapter_from_tensors` for a PEFT folder; each rank gets a copy, by value."""
    folder = Path(path)
    tensors = load_file(folder / "adapter_model.safetensors")
    copy = base64.b64encode(pickle.dumps(tensors)).decode()
    config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    return {"lora_name": name, "config_dict": config, "serialized_named_tensors": [copy] * tp_size}
