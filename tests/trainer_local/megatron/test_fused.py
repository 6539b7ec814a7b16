"""Element-wise parts of a layer: plain torch's results, and when the compiler is used. On CUDA: test_prefix_cuda.py."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.exc import FailOnRecompileLimitHit, TorchDynamoException
from transformers.models.qwen3.modeling_qwen3 import apply_rotary_pos_emb

from openclaw_rl.trainer_local.megatron import fused

CUDA = torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def untried() -> Iterator[None]:
    fused.fuses.cache_clear()
    yield
    fused.fuses.cache_clear()
    fused.FusedFailure.known = False


def test_queries_are_rotated_as_transformers_does() -> None:
    query, angles = torch.randn(7, 1, 4, 16), torch.randn(7, 8)
    places = torch.cat([angles, angles], -1)
    known, _ = apply_rotary_pos_emb(
        query.permute(1, 2, 0, 3), query.permute(1, 2, 0, 3), places.cos()[None], places.sin()[None]
    )
    found = fused.rotate(query, *(part[:, None, None] for part in (places.cos(), places.sin())))
    assert torch.equal(found.permute(1, 2, 0, 3), known)


def test_nothing_is_compiled_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "_compiled", lambda: pytest.fail("the compiler was asked"))
    assert not fused.fuses(torch.device("cpu"))


@pytest.mark.parametrize("worse", ["_rotation_trial", "_swiglu_trial"])
@pytest.mark.parametrize(("difference", "used"), [(1e-3, True), (0.5, False), (float("nan"), False)])
def test_the_compiler_is_used_where_all_its_results_are_those_of_plain_torch(
    worse: str, difference: float, used: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for trial in ("_rotation_trial", "_swiglu_trial"):
        monkeypatch.setattr(fused, trial, lambda _, value=difference if trial == worse else 0.0: value)
    with caplog.at_level(logging.WARNING):
        assert fused.fuses(CUDA) == used
    assert ("differ" in caplog.text) != used


def swiglu(part: Tensor, _: None) -> Tensor:
    gate, up = part.chunk(2, -1)
    return torch.nn.functional.silu(gate) * up


class WrongGradient(torch.autograd.Function):
    @staticmethod
    def forward(_: Any, part: Tensor) -> Tensor:
        return swiglu(part, None)

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> Tensor:
        return torch.cat([gradient, gradient], -1)


SWIGLUS: dict[str, tuple[Callable[[Tensor, None], Tensor], bool]] = {
    "right": (swiglu, True),
    "halves exchanged": (lambda part, _: swiglu(part.roll(part.shape[-1] // 2, -1), None), False),
    "wrong gradient": (lambda part, _: WrongGradient.apply(part), False),
    "wrong for another length": (lambda part, _: swiglu(part, None) * (1 if len(part) == 37 else 2), False),
    "not a number": (lambda part, _: swiglu(part, None) * torch.nan, False),
}


@pytest.mark.parametrize("name", list(SWIGLUS))
def test_the_swiglu_of_megatron_core_is_compared_too(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    impl, right = SWIGLUS[name]
    module = SimpleNamespace(bias_swiglu_impl=impl)
    monkeypatch.setitem(sys.modules, "megatron.core.fusions.fused_bias_swiglu", module)
    assert (fused._swiglu_trial(torch.device("cpu")) <= fused.TOLERANCE) == right


def test_a_compiler_that_fails_is_named_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def failing(_: torch.device) -> float:
        raise RuntimeError("no compiler\nand a long story")

    monkeypatch.setattr(fused, "_swiglu_trial", failing)
    monkeypatch.setattr(fused, "_rotation_trial", lambda _: 0.0)
    with caplog.at_level(logging.WARNING):
        assert not fused.fuses(CUDA) and not fused.fuses(CUDA)
    (record,) = caplog.records
    assert record.getMessage() == "torch's compiler cannot be used: RuntimeError: no compiler"


def test_memory_that_lacks_is_not_taken_for_the_compilers_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> torch.Tensor:
        raise TorchDynamoException("backend='inductor' raised:\nOutOfMemoryError: CUDA out of memory.")

    monkeypatch.setattr(fused, "fuses", lambda _: True)
    monkeypatch.setattr(fused, "_compiled", lambda: full)
    with pytest.raises(TorchDynamoException, match="out of memory"):
        fused.rotate(torch.randn(7, 1, 4, 16), torch.ones(7, 1, 1, 16), torch.zeros(7, 1, 1, 16))
    assert not fused.FusedFailure.known


@pytest.mark.parametrize("error", [TorchDynamoException("no kernel"), FailOnRecompileLimitHit("no kernel")], ids=repr)
def test_a_later_tensor_that_does_not_compile_is_rotated_by_plain_torch(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[int] = []

    def failing(*_: Any) -> Any:
        calls.append(1)
        raise error

    monkeypatch.setattr(fused, "fuses", lambda _: True)
    monkeypatch.setattr(fused, "_compiled", lambda: failing)
    part, places = torch.randn(5, 1, 2, 8), (torch.randn(5, 1, 1, 8), torch.randn(5, 1, 1, 8))
    for _ in range(2):
        assert torch.equal(fused.rotate(part, *places), fused._rotated(part, *places))
    assert len(calls) == len(caplog.records) == 1


@pytest.mark.slow
def test_compiled_rotation_and_its_gradient_are_those_of_plain_torch() -> None:
    """By the compiler for CPUs; its kernels for CUDA are others."""
    assert fused._rotation_trial(torch.device("cpu")) <= fused.TOLERANCE
