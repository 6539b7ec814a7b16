"""The shape of a model for Megatron-core, from its Hugging Face configuration, and the refusal of unsupported ones."""

from __future__ import annotations

from typing import Any

import msgspec

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.trainer_local.placement import model_shape

INSTEAD = "set backend = embedded with device = cuda: the transformers trainer takes any Hugging Face model"


class Shape(model_shape.ModelShape, frozen=True, kw_only=True):
    """A Qwen3 model, dense or with experts. `groups` are its key-value heads, each serving `heads / groups` query
    heads.
    """

    epsilon: float
    rope_theta: float
    renormalized: bool = False
    """True if the shares of the experts that a token goes through sum to 1."""

    def padded(self, tensor_parallel: int) -> int:
        """The vocabulary, filled up so that every rank has as many rows."""
        return -(-self.vocabulary // tensor_parallel) * tensor_parallel


def shape_of(config: Any, model: str, tensor_parallel: int) -> Shape:
    """Shape of the model with the transformers configuration `config`. Raises `ConfigError` if this trainer, or this
    number of ranks, cannot hold it.
    """
    sizes = config.to_dict()
    if reason := model_shape.why_not_megatron(sizes):
        raise ConfigError(f"backend = megatron cannot train model = {model!r}, which {reason}; for this one {INSTEAD}")
    shape = Shape(
        **msgspec.structs.asdict(model_shape.shape_of(sizes)),
        epsilon=config.rms_norm_eps,
        rope_theta=float(config.rope_parameters["rope_theta"]),
        renormalized=bool(sizes.get("norm_topk_prob")),
    )
    parts = {"key-value heads": shape.groups, "attention heads": shape.heads, "feed-forward width": shape.feed_forward}
    for name, size in parts.items():
        if size % tensor_parallel:
            raise ConfigError(
                f"tensor_parallel = {tensor_parallel} does not divide the {size} {name} of {model!r}: choose a divisor "
                f"of {shape.groups}"
            )
    return shape
