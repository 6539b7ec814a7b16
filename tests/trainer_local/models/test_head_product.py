"""Logits of a model in bfloat16 are products in single precision."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from openclaw_rl.trainer_local.models import head_product as module
from openclaw_rl.trainer_local.models.head import hidden_states
from openclaw_rl.trainer_local.models.head_product import head_product

ULP = 2.0**-8
"""Relative distance of neighbors in bfloat16, rounded to the nearest: at most this error."""


def operands(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden states, a weight, and a gradient of their logits."""
    torch.manual_seed(3)
    hidden, weight = 4 * torch.randn(5, 64), torch.randn(700, 64)
    return hidden.to(dtype).requires_grad_(), weight.to(dtype).requires_grad_(), torch.randn(5, 700)


def exact(hidden: Tensor, weight: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The product of the same numbers in double precision, and its gradients."""
    wide, heavy = hidden.detach().double(), weight.detach().double()
    return wide @ heavy.t(), gradient.double() @ heavy, gradient.double().t() @ wide


def apart(found: Tensor, known: Tensor) -> float:
    """The largest difference, relative to the largest number."""
    return float((found.detach().double() - known).abs().max() / known.abs().max())


@pytest.mark.parametrize("block", [8192, 300])
def test_products_and_gradients_of_bfloat16_are_those_in_single_precision(
    monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(module, "BLOCK", block)
    hidden, weight, gradient = operands(torch.bfloat16)
    logits, to_hidden, to_weight = exact(hidden, weight, gradient)
    found = head_product(hidden, weight)
    assert found.dtype == torch.float32 and apart(found, logits) < 1e-6
    found.backward(gradient)
    assert hidden.grad is not None and weight.grad is not None
    assert (hidden.grad.dtype, weight.grad.dtype) == (torch.bfloat16, torch.bfloat16)
    for part, known in ((hidden.grad, to_hidden), (weight.grad, to_weight)):
        assert torch.equal(part, known.float().bfloat16()) or apart(part, known) < ULP

    plain = torch.nn.functional.linear(hidden, weight)
    assert apart(plain.float(), logits) > 1e-4, "without it they are rounded to bfloat16"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_other_types_are_multiplied_as_they_are(dtype: torch.dtype) -> None:
    hidden, weight, _ = operands(dtype)
    found = head_product(hidden, weight)
    assert torch.equal(found, torch.nn.functional.linear(hidden, weight))


def test_no_gradient_is_computed_for_a_frozen_weight() -> None:
    hidden, weight, gradient = operands(torch.bfloat16)
    weight.requires_grad_(False)
    head_product(hidden, weight).backward(gradient)
    assert hidden.grad is not None and weight.grad is None


SHAPE: dict[str, Any] = {
    **{"vocab_size": 90, "hidden_size": 32, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2},
    **{"num_key_value_heads": 1, "head_dim": 8, "pad_token_id": 0, "initializer_range": 0.5},
}


@pytest.mark.parametrize("targets", [["q_proj"], ["q_proj", "lm_head"]], ids=["head as it is", "head with an adapter"])
@pytest.mark.parametrize(("kind", "cap"), [("qwen3", None), ("gemma2", 3.0)])
def test_a_model_in_bfloat16_gives_logits_in_single_precision(kind: str, cap: float | None, targets: Any) -> None:
    torch.manual_seed(2)
    changes = {"final_logit_softcapping": cap} if cap else {}
    config = AutoConfig.for_model(kind, **SHAPE, **changes, tie_word_embeddings=False)
    plain = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    weight = plain.lm_head.weight
    model = get_peft_model(plain, LoraConfig(r=2, target_modules=targets, task_type="CAUSAL_LM")).eval()
    ids, place = torch.randint(1, 90, (1, 6)), torch.arange(6)
    states, head = hidden_states(model, torch.zeros_like(place), place, input_ids=ids, use_cache=False)
    logits = states.detach().double() @ weight.detach().double().t()
    logits = cap * torch.tanh(logits / cap) if cap else logits
    assert head(states).dtype == torch.float32
    assert apart(head(states), logits) < 1e-6
    assert apart(model(input_ids=ids).logits[0].float(), logits) > 1e-4


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA has such a product of its own")
def test_on_cuda_products_are_those_in_single_precision() -> None:
    hidden, weight, gradient = (part.detach().cuda() for part in operands(torch.bfloat16))
    hidden.requires_grad_()
    logits, to_hidden, _ = exact(hidden, weight, gradient)
    found = head_product(hidden, weight)
    assert found.dtype == torch.float32 and apart(found, logits) < 1e-5
    found.backward(gradient)
    assert hidden.grad is not None and apart(hidden.grad, to_hidden) < 4 * ULP
