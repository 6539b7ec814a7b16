"""The order of attention's kernels; their results on CUDA: tests/real/test_prefix_cuda.py."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch.nn.attention import SDPBackend

from openclaw_rl.trainer_local.training.attention_kernels import CUDNN_TOKENS, ORDER, long_sequence_kernels

CUDA = torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def untried() -> Iterator[None]:
    long_sequence_kernels.cache_clear()
    yield
    long_sequence_kernels.cache_clear()


@pytest.mark.parametrize(
    ("capability", "tokens", "first"),
    [
        ((9, 0), CUDNN_TOKENS, SDPBackend.CUDNN_ATTENTION),
        ((10, 0), 2 * CUDNN_TOKENS, SDPBackend.CUDNN_ATTENTION),
        ((9, 0), CUDNN_TOKENS - 1, None),
        ((8, 6), 2 * CUDNN_TOKENS, None),
    ],
)
def test_cudnn_goes_first_on_long_sequences_and_new_cards(
    capability: tuple[int, int], tokens: int, first: SDPBackend | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    kernels = long_sequence_kernels(CUDA, tokens)
    assert (kernels[0] if kernels else None) == first
    assert not kernels or set(kernels) == set(ORDER)


def test_a_cpu_has_one_order() -> None:
    assert long_sequence_kernels(torch.device("cpu"), 10 * CUDNN_TOKENS) == ()
