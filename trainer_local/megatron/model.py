"""Megatron-core's GPTModel for the Qwen3 family, with the attention of `trainer_local.megatron.attention`; for models
with experts the mixture of `trainer_local.megatron.experts`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import Tensor

from openclaw_rl.trainer_local.megatron.attention import CurrentSequence, PackedAttention
from openclaw_rl.trainer_local.megatron.collectives import copy_to_parts, gather_parts
from openclaw_rl.trainer_local.megatron.experts import Mixture
from openclaw_rl.trainer_local.megatron.fused import fuses
from openclaw_rl.trainer_local.megatron.lora import Switch
from openclaw_rl.trainer_local.megatron.shape import Shape
from openclaw_rl.trainer_local.models.head_product import head_product
from openclaw_rl.trainer_local.prefix.tree import Packed


def configuration(shape: Shape, tensor_parallel: int, dtype: torch.dtype, device: torch.device) -> TransformerConfig:
    """Megatron-core's configuration of a model on `device`. All weights are overwritten, so nothing is drawn for them;
    their initialisation stays on, since it marks which of them are cut among ranks.
    """

    def leave(weight: Tensor) -> Tensor:
        return weight

    return TransformerConfig(
        num_layers=shape.layers,
        hidden_size=shape.hidden,
        num_attention_heads=shape.heads,
        num_query_groups=shape.groups,
        kv_channels=shape.head,
        ffn_hidden_size=shape.feed_forward,
        normalization="RMSNorm",
        layernorm_epsilon=shape.epsilon,
        qk_layernorm=True,
        gated_linear_unit=True,
        activation_func=torch.nn.functional.silu,
        add_bias_linear=False,
        add_qkv_bias=False,
        attention_dropout=0.0,
        hidden_dropout=0.0,
        tensor_model_parallel_size=tensor_parallel,
        params_dtype=dtype,
        pipeline_dtype=dtype,
        bf16=dtype == torch.bfloat16,
        use_cpu_initialization=device.type == "cpu",
        perform_initialization=True,
        init_method=leave,
        output_layer_init_method=leave,
        embedding_init_method=leave,
        # A batch's loss is already a mean over all its tokens: gradients of ranks are summed.
        calculate_per_token_loss=True,
        bias_activation_fusion=fuses(device),
        # These need Apex.
        gradient_accumulation_fusion=False,
        bias_dropout_fusion=False,
        masked_softmax_fusion=False,
        apply_rope_fusion=False,
        persist_layer_norm=False,
    )


class PackedModel(torch.nn.Module):
    """A GPTModel that takes packed sequences and computes logits only where they are needed.

    `gpt` is Megatron-core's model; nothing else here has weights. `switch` is that of its adapters.
    """

    frequencies: Tensor

    def __init__(self, shape: Shape, config: TransformerConfig) -> None:
        super().__init__()
        self.shape = shape
        self.switch = Switch()
        self._current = CurrentSequence()
        self.gpt = GPTModel(
            config,
            _layer(self._current, shape),
            vocab_size=shape.padded(config.tensor_model_parallel_size),
            max_sequence_length=shape.context,
            position_embedding_type="rope",
            rotary_base=shape.rope_theta,
            share_embeddings_and_output_weights=shape.tied,
            parallel_output=True,
        )
        self._ranks = config.tensor_model_parallel_size
        even = torch.arange(0, shape.head, 2, dtype=torch.float32)
        # Rounded as transformers rounds it: at large positions one unit of rounding is a visible difference.
        self.register_buffer("frequencies", 1.0 / shape.rope_theta ** (even / shape.head), persistent=False)
        self._open_input = False

    def recompute(self, layers: int) -> None:
        """Let the first `layers` layers recompute their activations in training mode, from the next pass on."""
        config = self.gpt.config  # Megatron-core reads these in every pass
        config.recompute_granularity = "full" if layers else None
        config.recompute_method = "block" if layers else None
        config.recompute_num_layers = layers or None

    def open_input(self) -> None:
        """Let gradients reach the embeddings' output though nothing before it is trained: recomputed layers would have
        none otherwise.
        """
        self._open_input = True

    @contextmanager
    def packing(self, packed: Packed) -> Iterator[None]:
        """Have `packed` in the model while the block runs; its backward pass belongs inside, where layers may be
        recomputed.
        """
        self._current.put(packed.runs)
        try:
            yield
        finally:
            self._current.put(())

    def hidden(self, packed: Packed) -> Tensor:
        """The last layer's output `[N, hidden]`, normalised; inside `packing`."""
        device = self.frequencies.device
        ids = torch.tensor([packed.ids], device=device)
        positions = torch.tensor(packed.positions, dtype=torch.float32, device=device)
        angles = torch.outer(positions, self.frequencies)
        rotary = torch.cat([angles, angles], dim=-1)[:, None, None]
        dtype = self.gpt.config.params_dtype
        self._current.places = rotary.cos().to(dtype), rotary.sin().to(dtype)
        hidden = self.gpt.embedding(input_ids=ids, position_ids=None)
        if self._open_input and torch.is_grad_enabled() and not hidden.requires_grad:
            hidden.requires_grad_(True)
        hidden = self.gpt.decoder(hidden_states=hidden, attention_mask=None)
        return hidden[:, 0]

    def logits(self, hidden: Tensor) -> Tensor:
        """`[N, vocabulary]` in single precision from the last hidden states `[N, hidden]`, complete on every rank."""
        weight = self.gpt.shared_embedding_or_output_weight() if self.shape.tied else self.gpt.output_layer.weight
        if self._ranks == 1:
            return head_product(hidden, weight)[:, : self.shape.vocabulary]
        group = self.gpt.pg_collection.tp
        part = head_product(copy_to_parts(hidden, group), weight)
        return gather_parts(part, group)[:, : self.shape.vocabulary]


def _layer(current: CurrentSequence, shape: Shape) -> Any:
    """Megatron-core's local layer with packed attention, and the experts where there are some."""
    spec = get_gpt_layer_local_spec(qk_layernorm=True, normalization="RMSNorm")
    spec.submodules.self_attention.submodules.core_attention = partial(PackedAttention, current)
    if shape.experts:
        spec.submodules.mlp = type("Mixture", (Mixture,), {"shape": shape})  # Megatron-core takes a class here
    return spec
