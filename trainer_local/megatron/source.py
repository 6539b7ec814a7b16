"""The weights of a Hugging Face folder, read tensor by tensor, so that no process holds more than its own part."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download
from safetensors import SafetensorError, safe_open
from torch import Tensor
from transformers import AutoConfig

from openclaw_rl.shared.errors import ConfigError

HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


class Source:
    """A folder, or a name on the hub that is downloaded. Raises `ConfigError` where it is no model."""

    def __init__(self, model: str) -> None:
        self.model = model
        try:
            self.config: Any = AutoConfig.from_pretrained(model)
        except (OSError, ValueError) as error:
            raise ConfigError(f"model = {model!r} cannot be loaded as a causal language model: {error}") from error

    @cached_property
    def folder(self) -> Path:
        """Where its files are."""
        if Path(self.model).is_dir():
            return Path(self.model)
        try:
            return Path(snapshot_download(self.model, allow_patterns=["*.json", "*.safetensors", "*.txt", "*.jinja"]))
        except (OSError, ValueError) as error:
            raise ConfigError(f"model = {self.model!r} cannot be downloaded: {error}") from error

    @cached_property
    def files(self) -> Mapping[str, Path]:
        """The file of every tensor."""
        index = self.folder / "model.safetensors.index.json"
        if index.exists():
            return {name: self.folder / file for name, file in json.loads(index.read_text())["weight_map"].items()}
        single = self.folder / "model.safetensors"
        if not single.exists():
            raise ConfigError(
                f"{self.folder} has no model.safetensors: write the model with save_pretrained of transformers 5"
            )
        with safe_open(single, "pt") as file:
            return dict.fromkeys(file.keys(), single)

    def tensor(self, name: str) -> Tensor:
        """The weight called `name`, on the CPU. Raises `ConfigError` where it is not there."""
        file = self.files.get(name)
        if file is None and name == HEAD:  # left out by those who write tied models
            return self.tensor(EMBEDDING)
        if file is None:
            raise ConfigError(f"{self.folder} has no weight {name}: it is not the whole of a {self.config.model_type}")
        try:
            with safe_open(file, "pt") as opened:
                found: Tensor = opened.get_tensor(name)
        except (OSError, SafetensorError) as error:
            raise ConfigError(f"{file} cannot be read: {error}") from error
        return found
