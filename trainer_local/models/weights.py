"""Loading a Hugging Face causal language model for training, and writing adapters and full weights.

The vision encoder is frozen unless `lora_targets` or `train_vision` say otherwise: SGLang (0.5.23) caches its features
across new weights.
"""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoTokenizer
from transformers.utils import cached_file

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_local.backend import FOR_SGLANG, serves_full_weights
from openclaw_rl.trainer_local.models.loading import model_class
from openclaw_rl.trainer_local.training.checkpoint import check_weights
from openclaw_rl.trainer_local.training.masters import Masters

ALL_LINEAR = "all-linear"
_SMALL_GATES = frozenset({"in_proj_a", "in_proj_b"})
"""Projections of a gated delta net to one number a head: no adapter there can be served by SGLang."""
_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_READERS = ("preprocessor_config.json", "video_preprocessor_config.json", "processor_config.json")
"""Files of the image processor."""


class Weights:
    """A policy and its frozen base, both in `dtype`: LoRA over one model, or all weights and a copy.

    `model` is what is trained. `masters` are its trained weights in single precision by name, in a fixed order.
    """

    def __init__(self, settings: Settings, device: torch.device, dtype: torch.dtype) -> None:
        self.source = settings.engine.model
        self.tokenizer_source = settings.engine.tokenizer_path
        self.lora = settings.learning.lora
        self._serves_full_weights = settings.engine.backend != "embedded" and bool(serves_full_weights(settings))
        self.plain: Any = load(settings.engine.model, dtype).to(device).eval()
        exact: Mapping[str, Tensor] = {}
        if settings.learning.lora:
            self._frozen: Any = None
            targets = settings.learning.lora_targets.strip()
            try:
                self.model: Any = get_peft_model(
                    self.plain,
                    LoraConfig(
                        r=settings.learning.lora_rank,
                        lora_alpha=settings.learning.lora_alpha,
                        lora_dropout=settings.learning.lora_dropout,
                        target_modules=lora_targets(self.plain, targets),
                        task_type="CAUSAL_LM",
                        base_model_name_or_path=settings.engine.model,
                    ),
                )
            except ValueError as error:
                raise ConfigError(
                    f"lora_targets = {targets!r} does not fit {settings.engine.model!r}: {error}"
                ) from error
            self.model.eval()
            exact = _round_adapters(self.model, dtype)
        else:
            self._frozen = copy.deepcopy(self.plain).requires_grad_(False)
            self.model = self.plain.requires_grad_(True)
            for name, part in self.plain.named_parameters():
                if is_vision(name) and not settings.learning.train_vision:
                    part.requires_grad_(False)
            if dtype != torch.float32:
                exact = dict(load(settings.engine.model, torch.float32).named_parameters())
        self._trained = Masters(_trainable(self.model), exact)
        self.masters: Mapping[str, Tensor] = self._trained.weights
        self.vocab_size = int(self.plain.get_output_embeddings().weight.shape[0])

    @contextmanager
    def base(self) -> Iterator[Any]:
        """The frozen base while the block runs; the adapter and its dropout are off meanwhile."""
        training = self.model.training
        self.model.eval()
        with self.model.disable_adapter() if self.lora else nullcontext():
            yield self.model if self._frozen is None else self._frozen
        self.model.train(training)

    def with_values(self, values: Mapping[str, Tensor]) -> AbstractContextManager[None]:
        """A context in which the model computes with `values` instead of the masters; without gradients."""
        return self._trained.with_values(values)

    def update_model(self) -> None:
        """Let the model compute with masters that were changed."""
        self._trained.update_model()

    def snapshot(self) -> dict[str, Tensor]:
        """A copy of every master."""
        return {name: part.detach().clone() for name, part in self.masters.items()}

    def assign(self, values: Mapping[str, Tensor]) -> None:
        """Set every master; `TrainerError` where names or shapes are others."""
        check_weights(values, {name: part.shape for name, part in self.masters.items()})
        with torch.no_grad():
            for name, part in self.masters.items():
                part.copy_(values[name])
        self.update_model()

    def write_served(self, folder: Path) -> None:
        """Write the folder that an engine loads, from the masters: a PEFT adapter, with a copy under SGLang's names
        where those differ; or a Hugging Face folder where all weights are trained, or SGLang takes no such adapter.
        """
        if not self.lora or self._serves_full_weights:
            self.write_merged(folder)
            return
        with self._trained.in_model():
            self.model.save_pretrained(folder, save_embedding_layers=False)
        (folder / "README.md").unlink(missing_ok=True)
        text = self.plain.config.get_text_config()
        if any("in_proj_qkv" in name for name in self.masters):
            split_adapter(folder, text.linear_key_head_dim * text.linear_num_key_heads)

    def write_merged(self, folder: Path) -> None:
        """A Hugging Face folder with full weights and tokenizer that needs no base and no adapter."""
        with self._trained.in_model():
            whole = copy.deepcopy(self.model).merge_and_unload() if self.lora else self.model
            whole.save_pretrained(folder)
        AutoTokenizer.from_pretrained(self.tokenizer_source).save_pretrained(folder)
        for name in _READERS:
            found = cached_file(self.source, name, _raise_exceptions_for_missing_entries=False)
            if found:
                shutil.copyfile(found, folder / name)


def _trainable(model: Any) -> dict[str, Tensor]:
    return {name: part for name, part in model.named_parameters() if part.requires_grad}


def _round_adapters(model: Any, dtype: torch.dtype) -> dict[str, Tensor]:
    """Let the adapters of `model`, which PEFT makes in single precision, compute in `dtype`; returns their values
    before.
    """
    exact = {name: part.data for name, part in _trainable(model).items()}
    for part in _trainable(model).values():
        part.data = part.data.to(dtype)
    return exact


def load(source: str, dtype: torch.dtype) -> Any:
    """The model in a folder or under a hub name, with any vision encoder. Raises `ConfigError`."""
    try:
        return model_class(source).from_pretrained(source, dtype=dtype)
    except (OSError, ValueError) as error:
        raise ConfigError(f"model = {source!r} cannot be loaded as a causal language model: {error}") from error


def split_adapter(folder: Path, keys: int) -> None:
    """Write the adapter in `folder` under the names that SGLang (0.5.23) has for a gated delta net, in a folder of its
    own inside: `in_proj_qkv`, which makes queries and keys of `keys` numbers each and the values, becomes three, and
    all four projections together are the module `in_proj_qkvz`.
    """
    parts: dict[str, Tensor] = {}
    for name, weight in load_file(folder / _WEIGHTS).items():
        if ".in_proj_qkv." not in name:
            parts[name] = weight
            continue
        rows = [weight] * 3 if ".lora_A." in name else [weight[:keys], weight[keys : 2 * keys], weight[2 * keys :]]
        for letter, part in zip("qkv", rows, strict=True):
            parts[name.replace("in_proj_qkv", f"in_proj_{letter}")] = part.clone()
    config = json.loads((folder / _CONFIG).read_text(encoding="utf-8"))
    kept = [name for name in config["target_modules"] if name not in ("in_proj_qkv", "in_proj_z")]
    inside = folder / FOR_SGLANG
    inside.mkdir()
    save_file(parts, inside / _WEIGHTS)
    config["target_modules"] = sorted([*kept, "in_proj_qkvz"])
    (inside / _CONFIG).write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def is_vision(name: str) -> bool:
    """True if a parameter or module of this name belongs to the vision encoder."""
    return ".visual." in f".{name}."


def lora_targets(model: Any, wanted: str) -> str | list[str]:
    """PEFT's `target_modules` for the comma-separated names in `wanted`. `all-linear` is PEFT's own word; for models
    with a vision encoder or gated delta nets it means the linear layers of the language model.
    """
    if wanted != ALL_LINEAR:
        return [name.strip() for name in wanted.split(",")]
    linear = {name: part for name, part in model.named_modules() if isinstance(part, torch.nn.Linear)}
    inside = {name.rpartition(".")[2] for name, part in linear.items() if part is not model.get_output_embeddings()}
    if not any(is_vision(name) for name in linear) and not inside & _SMALL_GATES:
        return ALL_LINEAR
    seeing = {name.rpartition(".")[2] for name in linear if is_vision(name)}
    return sorted(inside - seeing - _SMALL_GATES)
