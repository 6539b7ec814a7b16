from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from openclaw_rl.trainer_local.training import host_copies
from openclaw_rl.trainer_local.training.host_copies import HostTransfer, ReusedCopies, parts, squared_distance

CPU = torch.device("cpu")


class LargestResult(TorchDispatchMode):
    """The largest result of an operation in new memory, in bytes."""

    def __init__(self, *known: torch.Tensor) -> None:
        super().__init__()
        self.bytes = 0
        self._known = {tensor.untyped_storage().data_ptr() for tensor in known}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if isinstance(found, torch.Tensor) and found.untyped_storage().data_ptr() not in self._known:
            self.bytes = max(self.bytes, found.untyped_storage().nbytes())
        return found


def test_a_large_weight_is_compared_in_chunks_in_double_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_copies, "CHUNK", 1000)
    first, second = torch.randn(301, 97), torch.randn(301, 97)
    with LargestResult(first, second) as largest:
        found = squared_distance(first, second)
    assert largest.bytes == 1000 * 8
    expected = (first - second).double().square().sum()
    assert found.dtype == torch.float64 and float(found) == pytest.approx(float(expected), rel=1e-12)
    turned = second.T.contiguous().T
    assert float(squared_distance(first, turned)) == pytest.approx(float(expected), rel=1e-12)


def test_copies_are_exact_and_in_the_memory_of_the_last_ones() -> None:
    copies = ReusedCopies(CPU, HostTransfer(CPU))
    weights = {"one": torch.randn(3, 5), "half": torch.randn(7).bfloat16()}
    first = copies.take(weights)
    before = {name: (part.clone(), part.data_ptr()) for name, part in first.items()}
    assert all(torch.equal(first[name], part) and first[name].dtype == part.dtype for name, part in weights.items())
    for part in weights.values():
        part.add_(1)
    assert all(torch.equal(first[name], kept) for name, (kept, _) in before.items())
    second = copies.take(weights)
    for name, part in weights.items():
        assert torch.equal(second[name], part) and second[name].data_ptr() == before[name][1]
    grown = copies.take({"one": torch.randn(4, 5)})
    assert grown.keys() == {"one"} and grown["one"].shape == (4, 5)


def test_parts_are_views_of_all_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_copies, "CHUNK", 4)
    tensor = torch.zeros(2, 5)
    for part in parts(tensor):
        part += 1
    assert [part.numel() for part in parts(tensor)] == [4, 4, 2] and bool((tensor == 1).all())
    with pytest.raises(RuntimeError):
        parts(torch.zeros(2, 5).T)
