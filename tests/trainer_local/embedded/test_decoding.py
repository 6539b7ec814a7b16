"""The same logprobs as the model's own forward, for architectures that can be packed and for those that cannot."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    PretrainedConfig,
    Qwen2MoeConfig,
    Qwen3Config,
)

from openclaw_rl.trainer_local.embedded.decoding import RowInput, Runner
from tests.trainer_local.serving import prompt

SMALL: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "bos_token_id": None,
    "eos_token_id": 1,
    "pad_token_id": 0,
}
QWEN3 = SMALL | {"head_dim": 16}
ARCHITECTURES: dict[str, tuple[PretrainedConfig, bool]] = {
    "qwen3": (Qwen3Config(**QWEN3), True),
    "qwen3 with sliding windows": (
        Qwen3Config(**QWEN3, use_sliding_window=True, sliding_window=16, max_window_layers=1),
        True,
    ),
    "llama": (LlamaConfig(**SMALL), True),
    "mistral with a sliding window": (MistralConfig(**SMALL, sliding_window=16), True),
    "mixture of experts": (
        Qwen2MoeConfig(**SMALL, num_experts=4, moe_intermediate_size=16, shared_expert_intermediate_size=16),
        True,
    ),
    "gpt2": (
        GPT2Config(vocab_size=96, n_embd=32, n_layer=2, n_head=2, n_positions=512, bos_token_id=1, eos_token_id=1),
        True,
    ),
    "gemma2, whose attention is capped": (Gemma2Config(**SMALL, head_dim=8, sliding_window=16), False),
}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_rows_of_any_length_are_exact(name: str) -> None:
    config, packed = ARCHITECTURES[name]
    torch.manual_seed(0)
    model: Any = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    sequences = [prompt(length, seed=length) for length in (70, 3, 41)]
    with torch.no_grad():
        wanted = [torch.log_softmax(model(input_ids=torch.tensor([ids])).logits[0], -1) for ids in sequences]
    runner = Runner(model)
    runner.prepare(model)
    assert runner.packed == packed
    rows = [runner.row(model) for _ in sequences]
    found: list[list[torch.Tensor]] = [[] for _ in sequences]
    done = [0] * len(sequences)
    # Each step takes a piece of every sequence: whole prompts or chunks of them first, then single tokens.
    for step, size in enumerate([30, 1, 1, 25, *[1] * 80]):
        parts, taking = [], []
        for index, ids in enumerate(sequences):
            piece = ids[done[index] : done[index] + size]
            if piece and not (step % 3 == 1 and index == 0):
                parts.append(RowInput(rows[index], piece, range(len(piece))))
                taking.append(index)
                done[index] += len(piece)
        if not parts:
            continue
        logits = torch.log_softmax(runner.forward(model, parts), -1)
        for index, rows_of in zip(taking, torch.split(logits, [len(part.ids) for part in parts]), strict=True):
            found[index].append(rows_of)
    for pieces, right in zip(found, wanted, strict=True):
        assert torch.allclose(torch.cat(pieces), right, atol=1e-4)


class LogitRows(TorchDispatchMode):
    """The most rows over the vocabulary of any result but the head's weight."""

    rows = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for part in tree_leaves(found):
            if isinstance(part, torch.Tensor) and part.dim() > 1 and part.shape[-1] == VOCABULARY:
                self.rows = max(self.rows, part.numel() // VOCABULARY)
        return found


VOCABULARY = 97
"""No other size of the models."""


@pytest.mark.parametrize("name", ["qwen3", "gemma2, whose attention is capped"])
def test_no_logits_are_made_that_are_not_needed(name: str) -> None:
    config, packed = ARCHITECTURES[name]
    config = type(config).from_dict({**config.to_dict(), "vocab_size": VOCABULARY})
    model: Any = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    runner = Runner(model)
    runner.prepare(model)
    assert runner.packed == packed
    ids = prompt(70)
    with LogitRows() as made:
        found = runner.forward(model, [RowInput(runner.row(model), ids, range(60, 70))])
    assert len(found) == 10 and made.rows <= 10
