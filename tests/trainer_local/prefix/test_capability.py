"""Sharing of prefixes in models of several families, with the gradients of each row alone in each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GemmaConfig,
    GemmaForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen3_5ForCausalLM,
    Qwen3_5TextConfig,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from openclaw_rl.trainer_local.prefix.capability import Sharing, sharing_of
from openclaw_rl.trainer_local.training.batching import row
from tests.trainer_local.row_by_row import ROWS, assert_same, conversation, one_by_one, together
from tests.trainer_local.tiny import VOCABULARY

SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "initializer_range": 0.2,
}
HYBRID: dict[str, Any] = SHAPE | {
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_key_heads": 1,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
EXPERTS: dict[str, Any] = SHAPE | {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8}
SLIDING: dict[str, Any] = SHAPE | {"sliding_window": 8}

FAMILIES: dict[str, tuple[Callable[[], Any], Sharing]] = {
    "Qwen3": (lambda: Qwen3ForCausalLM(Qwen3Config(**SHAPE)), Sharing.TREES),
    "Llama": (lambda: LlamaForCausalLM(LlamaConfig(**SHAPE)), Sharing.TREES),
    "Gemma": (lambda: GemmaForCausalLM(GemmaConfig(**SHAPE)), Sharing.TREES),
    "experts": (
        # The faster implementations of experts do not take float64.
        lambda: Qwen3MoeForCausalLM._from_config(Qwen3MoeConfig(**EXPERTS), experts_implementation="eager"),
        Sharing.TREES,
    ),
    "learned positions": (
        lambda: GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, n_layer=2, n_head=2, n_embd=16, n_positions=400)),
        Sharing.TREES,
    ),
    "hybrid linear attention": (lambda: Qwen3_5ForCausalLM(Qwen3_5TextConfig(**HYBRID)), Sharing.CHAINS),
    "sliding window": (lambda: MistralForCausalLM(MistralConfig(**SLIDING)), Sharing.CHAINS),
    "sliding window in some layers": (
        lambda: Gemma3ForCausalLM(Gemma3TextConfig(**SLIDING, layer_types=["sliding_attention", "full_attention"])),
        Sharing.CHAINS,
    ),
    "sliding window and caps": (
        lambda: Gemma2ForCausalLM(Gemma2Config(**SLIDING, final_logit_softcapping=0.5)),
        Sharing.CHAINS,
    ),
    "caps of attention": (
        lambda: Gemma2ForCausalLM(Gemma2Config(**SHAPE, layer_types=["full_attention"] * 2)),
        Sharing.CHAINS,
    ),
    "looking ahead": (lambda: LlamaForCausalLM(LlamaConfig(**SHAPE, is_causal=False)), Sharing.ALONE),
}


@pytest.fixture(params=FAMILIES, scope="module")
def family(request: pytest.FixtureRequest) -> tuple[Any, Sharing]:
    torch.manual_seed(3)
    make, expected = FAMILIES[request.param]
    return make().double().eval(), expected


def test_the_sharing_of_a_family_is_detected(family: tuple[Any, Sharing]) -> None:
    model, expected = family
    assert sharing_of(model) == expected
    assert sharing_of(model.float()) == expected
    model.double()


UNEVEN = [row([2 + number, *range(2, 2 + length)], [7, 8, 9]) for number, length in enumerate((1, 4, 9, 30, 38))]
"""Rows that share nothing, and are packed where the attention of a model allows it."""


@pytest.mark.parametrize("rows", [UNEVEN, ROWS, conversation(4, floating=True), conversation(4, floating=False)])
@pytest.mark.parametrize("budget", [1, 600])
def test_gradients_are_those_of_each_row_alone_in_every_family(
    family: tuple[Any, Sharing], rows: Any, budget: int
) -> None:
    model, sharing = family
    if sharing == Sharing.ALONE:
        pytest.skip("such a model says something else of every row")
    assert_same(together(model, rows, budget=budget, share=sharing), one_by_one(model, rows), rounding=1e-5)


def test_an_adapter_does_not_change_what_can_be_shared() -> None:
    torch.manual_seed(3)
    plain = Qwen3ForCausalLM(Qwen3Config(**SHAPE)).double().eval()
    model = get_peft_model(plain, LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False))
    assert sharing_of(plain) == Sharing.TREES
    rows = conversation(4, floating=True)
    assert_same(together(model, rows, budget=50, share=Sharing.TREES), one_by_one(model, rows))


def test_attention_that_drops_shares_too_with_the_gradients_of_what_it_does_not_drop() -> None:
    torch.manual_seed(3)
    shape = {"vocab_size": VOCABULARY, "n_layer": 2, "n_head": 2, "n_embd": 16, "n_positions": 400}
    config = GPT2Config(**shape, attn_pdrop=1e-12, resid_pdrop=0.0, embd_pdrop=0.0)
    model = GPT2LMHeadModel(config).double().train()
    rows = conversation(4, floating=True)
    assert_same(together(model, rows, budget=50, share=Sharing.TREES), one_by_one(model, rows))


def test_half_precision_can_share_too() -> None:
    torch.manual_seed(3)
    assert sharing_of(Qwen3ForCausalLM(Qwen3Config(**SHAPE)).bfloat16().eval()) == Sharing.TREES


def test_a_model_that_does_not_ask_for_its_attention_is_not_forked() -> None:
    torch.manual_seed(3)
    model = LlamaForCausalLM(LlamaConfig(**SHAPE)).eval()
    for layer in model.model.layers:
        own = type("OwnAttention", (type(layer.self_attn),), {"forward": _own_attention})
        layer.self_attn.__class__ = own
    assert sharing_of(model) == Sharing.CHAINS


def _own_attention(self: Any, hidden_states: torch.Tensor, **_: Any) -> tuple[torch.Tensor, None]:
    """A running mean: looks back, at everything, by no function of the library's."""
    counts = torch.arange(1, hidden_states.shape[1] + 1).view(1, -1, 1)
    return self.o_proj(self.q_proj(hidden_states).cumsum(1) / counts), None
