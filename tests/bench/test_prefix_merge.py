"""The program that compares merged with single turns, on conversations small enough to wait for."""

from __future__ import annotations

import json
import sys
from functools import cache
from typing import Any

import pytest
import torch
from torch._dynamo.exc import TorchDynamoException

from bench import gpu_page, prefix_merge
from bench.trainer_watch import StepWatch
from openclaw_rl.trainer_local.prefix import branch_attention
from tests.trainer_local.prefix.test_branch_attention import dense


def measured(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["prefix_merge", "--scale", "20", "--json", *arguments])
        assert prefix_merge.main() == code
    [line] = capsys.readouterr().out.splitlines()
    return json.loads(line)


def test_fewer_tokens_give_the_same_gradients(capsys: pytest.CaptureFixture[str]) -> None:
    result = measured(capsys, "--turns", "2", "6")
    assert list(result["turns"]) == ["2", "6"]
    for kind in ("turns", "without_floating_context"):
        for figures in result[kind].values():
            assert figures["tokens_merged"] < figures["tokens_per_turn"]
            assert figures["ratio"] == pytest.approx(figures["tokens_merged"] / figures["tokens_per_turn"], abs=1e-4)
            assert figures["largest_gradient"] > 0
            assert figures["max_grad_diff"] <= 1e-4 * figures["largest_gradient"]
            assert figures["relative_grad_diff"] <= 1e-4
            assert figures["branches"] == ("copies" if kind == "turns" else "no branches")
    assert result["flex_failure"] == ""
    assert result["turns"]["6"]["ratio"] < result["turns"]["2"]["ratio"]


def test_an_adapter_that_has_learned_has_gradients_in_both_halves(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gradients = []
    own = prefix_merge.compared
    monkeypatch.setattr(
        prefix_merge,
        "compared",
        lambda merged, *others: gradients.extend(merged.watch.gradients) or own(merged, *others),
    )
    result = measured(capsys, "--turns", "2", "--method", "rehearse", "--lora")
    assert gradients and all(float(gradient.abs().max()) > 0 for gradient in gradients)
    assert result["turns"]["2"]["relative_grad_diff"] <= 1e-4


def test_a_comparison_with_single_precision_that_ran_out_of_memory_is_named() -> None:
    def side(failure: str = "") -> prefix_merge.Side:
        watch = StepWatch()
        watch.gradients, watch.tokens = [torch.ones(2)], 5
        return prefix_merge.Side(watch, 1.0, 1.0, failure)

    figures = prefix_merge.compared(side(), side(), side("CUDA out of memory"))
    assert figures["single_precision_out_of_memory"] and "error_merged" not in figures
    found = prefix_merge.check("8 turns", figures)
    assert not found.passed and "float32 ran out of memory" in found.name
    assert prefix_merge.check("8 turns", prefix_merge.compared(side(), side())).passed


def test_gradients_that_differ_by_more_than_the_limit_fail(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefix_merge, "LIMIT", 0.0)
    result = measured(capsys, "--turns", "2", code=1)
    assert not all(check["passed"] for check in result["checks"])


def test_a_result_says_by_which_attention_branches_ran(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(branch_attention, "usable", lambda *_: True)
    monkeypatch.setattr(branch_attention, "attention", dense)
    result = measured(capsys, "--turns", "2")
    assert result["turns"]["2"]["branches"] == "FlexAttention"

    def broken(*_: Any) -> torch.Tensor:
        raise TorchDynamoException("no compiler")

    monkeypatch.setattr(branch_attention, "usable", cache(lambda *_: True))
    monkeypatch.setattr(branch_attention, "attention", broken)
    monkeypatch.setattr(branch_attention.FlexFailure, "reason", "")
    result = measured(capsys, "--turns", "2")
    assert result["turns"]["2"]["branches"] == "copies"
    assert result["flex_failure"] == "TorchDynamoException: no compiler"


def test_the_page_says_by_which_attention_branches_ran() -> None:
    figures = {"tokens_per_turn": 3, "tokens_merged": 2, "error_merged": 0.1, "error_per_turn": 0.1}
    fields = {"trainer": "megatron", "size": "small", "method": "binary"}
    [[*_, recorded], [*_, unknown]] = gpu_page._shared(
        "", {**fields, "turns": {"2": {**figures, "branches": "FlexAttention"}, "3": figures}}
    )
    assert (recorded, unknown) == ("FlexAttention", "not recorded")
