"""Transfers between the host and a CUDA device by page-locked buffers, which a CPU has no use for."""

from __future__ import annotations

import pytest
import torch

from openclaw_rl.trainer_local.training import host_copies
from openclaw_rl.trainer_local.training.host_copies import HostTransfer

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("count", [1, 999, 1000, 1001, 5555])
def test_transfers_by_page_locked_buffers_are_exact(
    dtype: torch.dtype, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_copies, "CHUNK", 1000)
    cuda = torch.device("cuda")
    transfer = HostTransfer(cuda)
    source = torch.randn(count).to(dtype)
    near, back = torch.empty(count, dtype=dtype, device=cuda), torch.empty(count, dtype=dtype)
    for _ in range(3):
        transfer.copy(near, source)
        transfer.copy(back, near)
        assert torch.equal(near.cpu(), source) and torch.equal(back, source)
        source.add_(1)
    assert all(buffer.is_pinned() for buffer in transfer._buffers)
