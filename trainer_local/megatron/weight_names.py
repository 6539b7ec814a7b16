"""Hugging Face weights, the Megatron-core weights made of them, and how both are cut among tensor-parallel ranks.

Megatron-core fuses query, key and value into one weight, group by group (the queries of a key-value head, its key, its
value), and gate and up projection into another, which each rank has as its part of the gate above its part of the up
projection. Embedding, qkv and fc1 are cut by rows, the projections behind them by columns, norms not at all. The same
cuts hold for gradients, moments and averages.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import torch
from huggingface_hub import snapshot_download
from safetensors import SafetensorError, safe_open
from torch import Tensor
from transformers import AutoConfig

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.trainer_local.megatron.shape import Shape

HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


class Source:
    """The weights of a Hugging Face folder, or of a hub name that is downloaded. They are read one by one, so that no
    process holds more than its own part. Raises `ConfigError` where it is no model.
    """

    def __init__(self, model: str) -> None:
        self.model = model
        try:
            self.config: Any = AutoConfig.from_pretrained(model)
        except (OSError, ValueError) as error:
            raise ConfigError(f"model = {model!r} cannot be loaded as a causal language model: {error}") from error

    @cached_property
    def folder(self) -> Path:
        """Folder of its files."""
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
        if file is None and name == HEAD:  # tied models are often written without it
            return self.tensor(EMBEDDING)
        if file is None:
            raise ConfigError(f"{self.folder} has no weight {name}: it is no complete {self.config.model_type}")
        try:
            with safe_open(file, "pt") as opened:
                found: Tensor = opened.get_tensor(name)
        except (OSError, SafetensorError) as error:
            raise ConfigError(f"{file} cannot be read: {error}") from error
        return found


class Cut(Protocol):
    """Cuts the Hugging Face tensors of one weight into the parts of the ranks, and joins them again."""

    @property
    def parallel(self) -> bool:
        """True if each rank has a different part."""
        ...

    def split(self, whole: Sequence[Tensor], ranks: int, rank: int) -> Tensor:
        """The part of `rank`."""
        ...

    def join(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """The Hugging Face tensors, from the parts of all ranks in order."""
        ...


class Replicated:
    """Every rank has all of one tensor."""

    parallel = False

    def split(self, whole: Sequence[Tensor], ranks: int, rank: int) -> Tensor:
        return whole[0]

    def join(self, parts: Sequence[Tensor]) -> list[Tensor]:
        return [parts[0]]


class Chunked:
    """One tensor, cut along dimension `dim`."""

    parallel = True

    def __init__(self, dim: int, rows: tuple[int, int] | None = None) -> None:
        """`rows`: rows of the tensor, and to how many it is padded before it is cut."""
        self._dim = dim
        self._rows = rows

    def split(self, whole: Sequence[Tensor], ranks: int, rank: int) -> Tensor:
        (tensor,) = whole
        if self._rows is not None and self._rows[0] < self._rows[1]:
            tensor = torch.cat([tensor, tensor.new_zeros(self._rows[1] - self._rows[0], *tensor.shape[1:])])
        return tensor.chunk(ranks, self._dim)[rank]

    def join(self, parts: Sequence[Tensor]) -> list[Tensor]:
        tensor = torch.cat(list(parts), self._dim)
        return [tensor if self._rows is None else tensor[: self._rows[0]]]


class Attention:
    """Query, key and value projection, `[heads · head, hidden]` and twice `[groups · head, hidden]`, in one."""

    parallel = True

    def __init__(self, shape: Shape) -> None:
        self._groups, self._head = shape.groups, shape.head
        self._queries = shape.heads // shape.groups * shape.head

    def split(self, whole: Sequence[Tensor], ranks: int, rank: int) -> Tensor:
        grouped = [part.reshape(self._groups, -1, part.shape[-1]) for part in whole]
        fused = torch.cat(grouped, 1).chunk(ranks, 0)[rank]
        return fused.reshape(-1, fused.shape[-1])

    def join(self, parts: Sequence[Tensor]) -> list[Tensor]:
        fused = torch.cat(list(parts), 0)
        grouped = fused.reshape(self._groups, -1, fused.shape[-1])
        sizes = [self._queries, self._head, self._head]
        return [part.reshape(-1, fused.shape[-1]) for part in grouped.split(sizes, 1)]


class Gated:
    """Gate and up projection, both `[feed forward, hidden]`, in one."""

    parallel = True

    def split(self, whole: Sequence[Tensor], ranks: int, rank: int) -> Tensor:
        return torch.cat([part.chunk(ranks, 0)[rank] for part in whole])

    def join(self, parts: Sequence[Tensor]) -> list[Tensor]:
        halves = [part.chunk(2, 0) for part in parts]
        return [torch.cat([half[which] for half in halves]) for which in (0, 1)]


class Stacked:
    """A weight of every expert, `each` of which is made of `of` tensors: `[experts, …]`."""

    def __init__(self, each: Cut, of: int = 1) -> None:
        self.parallel = each.parallel
        self._each = each
        self._of = of

    def split(self, whole: Sequence[Tensor], ranks: int, rank: int) -> Tensor:
        starts = range(0, len(whole), self._of)
        return torch.stack([self._each.split(whole[start : start + self._of], ranks, rank) for start in starts])

    def join(self, parts: Sequence[Tensor]) -> list[Tensor]:
        experts = zip(*(part.unbind() for part in parts), strict=True)
        return [tensor for expert in experts for tensor in self._each.join(expert)]


class Mapped:
    """One Megatron-core weight: the Hugging Face `names` that it is made of, and how it is cut."""

    def __init__(self, names: Sequence[str], cut: Cut) -> None:
        self.names = tuple(names)
        self.cut = cut


def mapping(shape: Shape, tensor_parallel: int) -> Mapping[str, Mapped]:
    """Every weight of the GPTModel by its name there."""
    rows = Chunked(0, (shape.vocabulary, shape.padded(tensor_parallel)))
    found = {"embedding.word_embeddings.weight": Mapped([EMBEDDING], rows)}
    for layer in range(shape.layers):
        theirs, ours = f"model.layers.{layer}.", f"decoder.layers.{layer}."
        attention = [f"{theirs}self_attn.{name}_proj.weight" for name in "qkv"]
        found |= {
            f"{ours}input_layernorm.weight": Mapped([f"{theirs}input_layernorm.weight"], Replicated()),
            f"{ours}self_attention.linear_qkv.weight": Mapped(attention, Attention(shape)),
            f"{ours}self_attention.q_layernorm.weight": Mapped([f"{theirs}self_attn.q_norm.weight"], Replicated()),
            f"{ours}self_attention.k_layernorm.weight": Mapped([f"{theirs}self_attn.k_norm.weight"], Replicated()),
            f"{ours}self_attention.linear_proj.weight": Mapped([f"{theirs}self_attn.o_proj.weight"], Chunked(1)),
            f"{ours}pre_mlp_layernorm.weight": Mapped([f"{theirs}post_attention_layernorm.weight"], Replicated()),
            **(_experts(shape, theirs, ours) if shape.experts else _feed_forward(theirs, ours)),
        }
    found["decoder.final_layernorm.weight"] = Mapped(["model.norm.weight"], Replicated())
    if not shape.tied:
        found["output_layer.weight"] = Mapped([HEAD], rows)
    return found


def _feed_forward(theirs: str, ours: str) -> dict[str, Mapped]:
    gated = [f"{theirs}mlp.gate_proj.weight", f"{theirs}mlp.up_proj.weight"]
    return {
        f"{ours}mlp.linear_fc1.weight": Mapped(gated, Gated()),
        f"{ours}mlp.linear_fc2.weight": Mapped([f"{theirs}mlp.down_proj.weight"], Chunked(1)),
    }


def _experts(shape: Shape, theirs: str, ours: str) -> dict[str, Mapped]:
    places = [f"{theirs}mlp.experts.{expert}." for expert in range(shape.experts)]
    gated = [f"{place}{name}_proj.weight" for place in places for name in ("gate", "up")]
    return {
        f"{ours}mlp.router": Mapped([f"{theirs}mlp.gate.weight"], Replicated()),
        f"{ours}mlp.fc1": Mapped(gated, Stacked(Gated(), of=2)),
        f"{ours}mlp.fc2": Mapped([f"{place}down_proj.weight" for place in places], Stacked(Chunked(1))),
    }
