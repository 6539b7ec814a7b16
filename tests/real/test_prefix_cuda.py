"""Shared prefixes on a CUDA device, where attention takes other kernels: the gradients of each row alone."""

from __future__ import annotations

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from openclaw_rl.trainer_local.prefix.capability import Sharing, sharing_of
from openclaw_rl.trainer_local.training.batching import Row, row
from tests.trainer_local.row_by_row import SHAPES, assert_same, one_by_one, together

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

TRUNK = [2 + index * 7 % 41 for index in range(3000)]
LONG = [
    row(TRUNK, [3, 4, 5]),
    # Longer than what is attended under a mask.
    row([*TRUNK[:2000], *TRUNK[:1500]], [6, 7]),
    *(row([*TRUNK[: 1000 * turn], 40, 41, turn], [8, 9, 10]) for turn in (1, 2, 3)),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("rows", [*SHAPES.values(), LONG], ids=[*SHAPES, "a branch under no mask"])
@pytest.mark.parametrize("budget", [64, 100_000])
def test_gradients_are_those_of_each_row_alone(rows: list[Row], dtype: torch.dtype, budget: int) -> None:
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=48,
        hidden_size=128,
        intermediate_size=192,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=8192,
        initializer_range=0.1,
    )
    model = Qwen3ForCausalLM(config).to("cuda", dtype).eval()
    assert sharing_of(model) == Sharing.TREES
    found = together(model, rows, budget=budget, share=Sharing.TREES)
    assert_same(found, one_by_one(model, rows), rounding=1e-3 if dtype == torch.float32 else 0.1)
