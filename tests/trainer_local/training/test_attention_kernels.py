"""The order of attention's kernels, in passes of the transformers trainer and of the engine too; their results on CUDA:
tests/real/test_prefix_cuda.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, _cur_sdpa_kernel_backends, sdpa_kernel

from openclaw_rl.trainer_local.embedded import decoding
from openclaw_rl.trainer_local.models import forward
from openclaw_rl.trainer_local.training.attention_kernels import (
    CUDNN_TOKENS,
    ORDER,
    attention_kernels,
    long_sequence_kernels,
)

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


def test_the_order_of_a_long_sequence_holds_inside_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    kernels = long_sequence_kernels(CUDA, CUDNN_TOKENS)
    with attention_kernels(CUDA):
        with sdpa_kernel(list(kernels), set_priority=True):
            assert _cur_sdpa_kernel_backends(with_priority=True)[: len(ORDER)] == list(kernels)
        assert _cur_sdpa_kernel_backends(with_priority=True)[: len(ORDER)] == list(ORDER)


def test_the_order_holds_inside_on_cuda() -> None:
    before = _cur_sdpa_kernel_backends(with_priority=True)
    with attention_kernels(torch.device("cuda", 0)):
        assert _cur_sdpa_kernel_backends(with_priority=True)[: len(ORDER)] == list(ORDER)
    assert _cur_sdpa_kernel_backends(with_priority=True) == before
    assert ORDER.index(SDPBackend.CUDNN_ATTENTION) > ORDER.index(SDPBackend.FLASH_ATTENTION)


def test_on_a_cpu_nothing_is_ordered() -> None:
    before = _cur_sdpa_kernel_backends(with_priority=True)
    with attention_kernels(torch.device("cpu")):
        assert _cur_sdpa_kernel_backends(with_priority=True) == before


class EnteredError(Exception):
    """The context was entered."""


@contextmanager
def entered(device: torch.device) -> Any:
    raise EnteredError(device)
    yield


def rows_through_transformers() -> None:
    model: Any = SimpleNamespace(parameters=lambda: iter([torch.zeros(1)]))
    forward.run_rows(model, [], lambda *_: None, micro_batch_tokens=1, share=forward.Sharing.ALONE, backward=False)


def rows_through_the_engine() -> None:
    runner: Any = SimpleNamespace(packed=True)
    model: Any = SimpleNamespace(device=torch.device("cpu"))
    decoding.Runner.forward(runner, model, [])


@pytest.mark.parametrize(
    ("module", "run"),
    [(forward, rows_through_transformers), (decoding, rows_through_the_engine)],
    ids=["transformers", "engine"],
)
def test_every_pass_enters_it(module: Any, run: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    context: Callable[[torch.device], AbstractContextManager[None]] = entered
    monkeypatch.setattr(module, "attention_kernels", context)
    with pytest.raises(EnteredError, match="cpu"):
        run()
