"""Shared prefixes on a CUDA device, where attention takes other kernels: the gradients of each row alone."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import Qwen3Config, Qwen3ForCausalLM

from openclaw_rl.trainer_local.megatron import attention as megatron_attention
from openclaw_rl.trainer_local.megatron import fused
from openclaw_rl.trainer_local.megatron.attention import CurrentSequence, PackedAttention
from openclaw_rl.trainer_local.prefix import attention as prefix_attention
from openclaw_rl.trainer_local.prefix import branch_attention
from openclaw_rl.trainer_local.prefix.capability import Sharing, sharing_of
from openclaw_rl.trainer_local.prefix.tree import Run, pack
from openclaw_rl.trainer_local.training.attention_kernels import (
    CUDNN_TOKENS,
    attention_kernels,
    long_sequence_kernels,
)
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
@pytest.mark.parametrize("way", ["FlexAttention", "copies"])
def test_gradients_are_those_of_each_row_alone(
    rows: list[Row], dtype: torch.dtype, budget: int, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    if way == "copies":
        monkeypatch.setattr(branch_attention, "usable", lambda *_: False)
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
    if way == "FlexAttention":
        assert branch_attention.usable(torch.device("cuda", 0), dtype, 4, 2, 64), "see the log"
    assert sharing_of(model) == Sharing.TREES
    found = together(model, rows, budget=budget, share=Sharing.TREES)
    assert_same(found, one_by_one(model, rows), rounding=1e-3 if dtype == torch.float32 else 0.1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("heads", "groups", "width"), [(4, 2, 64), (32, 8, 128)], ids=["small", "4B"])
def test_branches_of_a_megatron_layer_are_those_of_copies(
    dtype: torch.dtype, heads: int, groups: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert branch_attention.usable(torch.device("cuda", 0), dtype, heads, groups, width), "see the log"
    (packed,) = pack(LONG, 100_000)
    torch.manual_seed(0)
    shapes = [(packed.tokens, 1, count, width) for count in (heads, groups, groups)]
    inputs = [torch.randn(shape, device="cuda:0", dtype=dtype, requires_grad=True) for shape in shapes]
    weight = torch.randn(packed.tokens, 1, heads * width, device="cuda:0", dtype=dtype)
    found = []
    for way in ("FlexAttention", "copies"):
        if way == "copies":
            monkeypatch.setattr(branch_attention, "usable", lambda *_: False)
        output = PackedAttention(CurrentSequence(packed.runs))(*inputs)
        found.append([output, *torch.autograd.grad(output, inputs, weight)])
    rounding = 1e-3 if dtype == torch.float32 else 2e-2
    for one, other in zip(*found, strict=True):
        assert float((one - other).abs().max()) <= rounding * float(other.abs().max())


@pytest.fixture
def poisoned() -> None:
    """Memory that torch hands out next is full of NaN, as far as it was used before."""
    for size in (1 << 14, 1 << 16, 1 << 23):
        blocks = [torch.full((size,), torch.nan, device="cuda") for _ in range(64)]
        del blocks


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("keys", [33, 64, 97, 129, 255, 256, 257, 258, 289, 513])
def test_a_call_with_a_mask_reads_its_keys_and_no_other_memory(dtype: torch.dtype, keys: int, poisoned: None) -> None:
    heads, groups, width, tokens = 4, 2, 64, min(keys, 257)
    draw = torch.Generator("cuda").manual_seed(keys)

    def random(count: int, length: int) -> torch.Tensor:
        return torch.randn(1, count, length, width, generator=draw, device="cuda", dtype=dtype)

    query, key, value = random(heads, tokens), random(groups, keys), random(groups, keys)
    hidden = torch.ones(tokens, keys, dtype=torch.bool, device="cuda").triu(keys - tokens + 1)
    mask = torch.zeros(tokens, keys, device="cuda", dtype=dtype).masked_fill_(hidden, -torch.inf)
    call = prefix_attention._Call(0, tokens, (), mask)
    leaves = [part.requires_grad_() for part in (query, key, value)]
    with attention_kernels(query.device):
        output = prefix_attention._kernel(call, *leaves, None, 0.0)
        found = [output, *torch.autograd.grad(output, leaves, torch.ones_like(output))]
    exact = [part.detach().double().requires_grad_() for part in leaves]
    wide = [exact[0], *(part.repeat_interleave(heads // groups, 1) for part in exact[1:])]
    known = scaled_dot_product_attention(*wide, attn_mask=mask.double())
    reference = [known, *torch.autograd.grad(known, exact, torch.ones_like(known))]
    for one, other in zip(found, reference, strict=True):
        limit = 1e-4 if dtype == torch.float32 else 2e-2
        assert float((one - other).norm() / other.norm()) < limit


def test_element_wise_parts_are_compiled() -> None:
    assert fused.fuses(torch.device("cuda", 0)), "see the log"


def test_a_long_sequence_has_the_gradients_of_the_other_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = CUDNN_TOKENS + 77
    shapes = [(tokens, 1, heads, 128) for heads in (8, 2, 2)]
    torch.manual_seed(0)
    inputs = [torch.randn(shape, device="cuda:0", dtype=torch.bfloat16, requires_grad=True) for shape in shapes]
    found = []
    for kernels in (long_sequence_kernels(inputs[0].device, tokens), ()):
        monkeypatch.setattr(megatron_attention, "long_sequence_kernels", lambda *_, kernels=kernels: kernels)
        with attention_kernels(inputs[0].device):
            output = PackedAttention(CurrentSequence([Run(0, tokens, 0)]))(*inputs)
            found.append([output, *torch.autograd.grad(output.square().sum(), inputs)])
    for one, other in zip(*found, strict=True):
        assert float((one - other).norm() / other.norm()) < 2e-2
