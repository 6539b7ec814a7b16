"""Logits of any part of the hidden states are those that the model itself computes, whatever follows its head."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.modeling_outputs import CausalLMOutput

from openclaw_rl.shared.errors import TrainerError
from openclaw_rl.trainer_local.models.head import hidden_states

torch.set_num_threads(1)
SMALL: dict[str, Any] = {
    **{"vocab_size": 40, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2},
    **{"num_key_value_heads": 1, "head_dim": 8, "pad_token_id": 0, "initializer_range": 0.5},
}
MODELS: dict[str, dict[str, Any]] = {
    "qwen3": {},
    "llama": {},
    "mistral": {},
    "gemma2": {"final_logit_softcapping": 2.0},
    "gemma3_text": {},
    "cohere": {"logit_scale": 0.3},
    "granite": {"logits_scaling": 5.0},
    "phi3": {},
    "gpt_neox": {},
    "gpt2": {"n_embd": 16, "n_layer": 2, "n_head": 2},
    "opt": {"ffn_dim": 24, "word_embed_proj_dim": 8},
    "olmoe": {"num_experts": 2, "num_experts_per_tok": 1},
    "gpt_oss": {"num_local_experts": 2, "num_experts_per_tok": 1},
}


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_the_models_own(name: str) -> None:
    torch.manual_seed(1)
    config = AutoConfig.for_model(name, **{**SMALL, **MODELS[name]})
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    ids = torch.randint(1, 40, (2, 9))
    lines, columns = torch.tensor([0, 0, 0, 1, 1]), torch.tensor([3, 4, 8, 0, 7])
    whole = model(input_ids=ids).logits[lines, columns]
    states, head = hidden_states(model, lines, columns, input_ids=ids, use_cache=False)
    leaf = states.detach().requires_grad_()
    parts = [head(leaf[:3]), head(leaf[3:])]
    assert torch.allclose(torch.cat(parts), whole, atol=1e-5)
    assert float(whole.detach().abs().max()) > 0.5
    for part in parts:
        part.square().sum().backward()
    states.backward(leaf.grad)
    found = {key: part.grad.clone() for key, part in model.named_parameters() if part.grad is not None}
    model.zero_grad()
    whole.square().sum().backward()
    largest = max(float(part.grad.abs().max()) for part in model.parameters() if part.grad is not None)
    for key, part in model.named_parameters():
        if part.grad is not None:
            assert torch.allclose(found[key], part.grad, atol=1e-5 * largest), key
    assert torch.equal(model(input_ids=ids).logits[lines, columns], whole), "the model is as it was"


class InOnePiece(torch.nn.Module):
    """A model without a decoder of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = torch.nn.Embedding(5, 4), torch.nn.Linear(4, 5)

    @property
    def base_model(self) -> torch.nn.Module:
        return self

    def get_decoder(self) -> torch.nn.Module:
        return self

    def get_output_embeddings(self) -> torch.nn.Module:
        return self.head

    def forward(self, input_ids: Tensor) -> CausalLMOutput:
        return CausalLMOutput(logits=self.head(self.embedding(input_ids)))


def test_a_model_without_a_decoder_is_refused_by_name() -> None:
    place = torch.tensor([0])
    with pytest.raises(TrainerError, match=r"InOnePiece .* cannot be run apart"):
        hidden_states(InOnePiece(), place, place, input_ids=torch.ones(1, 2, dtype=torch.long))
