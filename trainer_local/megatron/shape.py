"""The shape of a model for Megatron-core, from its Hugging Face configuration, and the refusal of unsupported ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.trainer_local.placement.model_shape import why_not_megatron

INSTEAD = "set backend = embedded with device = cuda: the transformers trainer takes any Hugging Face model"


@dataclass(frozen=True)
class Shape:
    """A Qwen3 dense model. `groups` are its key-value heads, each serving `heads / groups` query heads; sizes in
    numbers.
    """

    layers: int
    hidden: int
    heads: int
    groups: int
    head: int
    feed_forward: int
    vocabulary: int
    epsilon: float
    rope_theta: float
    tied: bool
    context: int

    def padded(self, tensor_parallel: int) -> int:
        """The vocabulary, filled up so that every rank has as many rows."""
        return -(-self.vocabulary // tensor_parallel) * tensor_parallel


def shape_of(config: Any, model: str, tensor_parallel: int) -> Shape:
    """Shape of the model with the transformers configuration `config`. Raises `ConfigError` if this trainer, or this
    number of ranks, cannot hold it.
    """
    reason = why_not_megatron(config.to_dict())
    if reason:
        raise ConfigError(f"backend = megatron cannot train model = {model!r}, which {reason}; for this one {INSTEAD}")
    rope = config.rope_parameters
    shape = Shape(
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        heads=config.num_attention_heads,
        groups=config.num_key_value_heads,
        head=config.head_dim,
        feed_forward=config.intermediate_size,
        vocabulary=config.vocab_size,
        epsilon=config.rms_norm_eps,
        rope_theta=float(rope["rope_theta"]),
        tied=bool(config.tie_word_embeddings),
        context=config.max_position_embeddings,
    )
    parts = {"key-value heads": shape.groups, "attention heads": shape.heads, "feed-forward width": shape.feed_forward}
    for name, size in parts.items():
        if size % tensor_parallel:
            raise ConfigError(
                f"tensor_parallel = {tensor_parallel} does not divide the {size} {name} of {model!r}: choose a divisor "
                f"of {shape.groups}"
            )
    return shape
