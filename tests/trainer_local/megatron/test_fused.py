"""Element-wise parts of a layer: plain torch's results, and when the compiler is used. On CUDA: test_prefix_cuda.py."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import torch
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


@pytest.mark.parametrize(("difference", "used"), [(1e-3, True), (0.5, False), (float("nan"), False)])
def test_the_compiler_is_used_where_its_results_are_those_of_plain_torch(
    difference: float, used: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(fused, "_trial", lambda _: difference)
    with caplog.at_level(logging.WARNING):
        assert fused.fuses(CUDA) == used
    assert ("differ" in caplog.text) != used


def test_a_compiler_that_fails_is_named_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def failing(_: torch.device) -> float:
        raise RuntimeError("no compiler\nand a long story")

    monkeypatch.setattr(fused, "_trial", failing)
    with caplog.at_level(logging.WARNING):
        assert not fused.fuses(CUDA) and not fused.fuses(CUDA)
    (record,) = caplog.records
    assert record.getMessage() == "torch's compiler cannot be used: RuntimeError: no compiler"


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
    assert fused._trial(torch.device("cpu")) <= fused.TOLERANCE
