"""The kernels of attention are ordered on CUDA alone, in passes of the transformers trainer and of the engine."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, _cur_sdpa_kernel_backends

from openclaw_rl.trainer_local.embedded import decoding
from openclaw_rl.trainer_local.models import forward
from openclaw_rl.trainer_local.training.attention_kernels import ORDER, attention_kernels


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
