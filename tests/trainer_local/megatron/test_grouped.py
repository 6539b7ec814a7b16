"""Products of rows with the weights of their experts, in both ways of computing them."""

from __future__ import annotations

import pytest
import torch

from openclaw_rl.trainer_local.megatron.grouped import grouped


@pytest.mark.parametrize("counts", [[3, 0, 4], [0, 0, 7], [7, 0, 0]])
def test_rows_meet_the_weight_of_their_expert(counts: list[int]) -> None:
    torch.manual_seed(1)
    rows = torch.randn(7, 16, requires_grad=True)
    weights = torch.randn(3, 8, 16, requires_grad=True)
    ends = torch.tensor(counts).cumsum(0)
    found = grouped(rows, weights, ends)
    owner = torch.repeat_interleave(torch.arange(3), torch.tensor(counts))
    wanted = torch.einsum("ni,noi->no", rows, weights[owner])
    assert torch.allclose(found, wanted, atol=1e-5)
    seed = torch.randn_like(found)
    ours = torch.autograd.grad(found, [rows, weights], seed, retain_graph=True)
    theirs = torch.autograd.grad(wanted, [rows, weights], seed, retain_graph=True)
    assert all(torch.allclose(mine, yours, atol=1e-5) for mine, yours in zip(ours, theirs, strict=True))
    # The kernel for CUDA, as torch computes it on a CPU.
    kernel = torch.nn.functional.grouped_mm(rows, weights.transpose(-2, -1), offs=ends.to(torch.int32))
    assert torch.allclose(kernel, wanted, atol=1e-5)
