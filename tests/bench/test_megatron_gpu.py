"""The program that measures the Megatron-core trainer: its limits, its counts, its estimate. Needs Megatron-core."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("megatron.core", reason="tests/real/test_gpu_day.py runs this where Megatron-core is")
megatron_gpu = pytest.importorskip("bench.megatron_gpu")

CUDA = torch.device("cuda", 0)
PLANNED = 4 * megatron_gpu.GIB


def measured(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        own = ["--size", "tiny", "--tokens", "192", "--device", "cpu", "--repeats", "1", "--json"]
        patch.setattr(sys, "argv", ["megatron_gpu", *own, *arguments])
        assert megatron_gpu.main() == code
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def figures(**changes: Any) -> dict[str, Any]:
    found = {"estimate_bytes": PLANNED, "estimate_tokens": 8192, "micro_batch_tokens": 8192}
    return found | {"reserved_bytes": PLANNED} | changes


def test_a_step_in_float32_on_the_same_processor_agrees_exactly(capsys: pytest.CaptureFixture[str]) -> None:
    result = measured(capsys, "--cases", "LoRA")
    assert result["agreement"]["logprob_difference_max"] == result["agreement"]["gradients_relative_difference"] == 0
    case = result["cases"]["LoRA"]
    assert case["tokens"] == 191 and case["turn_tokens"] == 192
    parts = case["pass_seconds"] + case["teacher_seconds"] + case["measuring_seconds"]
    assert parts == pytest.approx(case["step_seconds"]) and case["measuring_seconds"] > 0
    assert case["mfu"] is None
    assert (
        case["estimate_bytes"] == sum(case["estimate_parts"].values()) and "CUDA context" not in case["estimate_parts"]
    )


def test_a_conversation_shares_its_prefixes_and_learns_by_its_method(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = ["--no-agreement", "--turns", "4", "--floating", "--method", "rehearse", "--cases", "LoRA"]
    result = measured(capsys, *arguments, "--profile", str(tmp_path), "--keep", str(tmp_path / "models"))
    case = result["cases"]["LoRA"]
    assert case["tokens"] < case["turn_tokens"] / 3
    assert case["teacher_seconds"] > 0
    assert "aten::mm" in (tmp_path / "lora.txt").read_text()
    assert (tmp_path / "models" / "tiny-float32" / "tokenizer.json").exists()


def test_bfloat16_is_near_and_past_a_limit_the_program_fails(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["--dtype", "bfloat16", "--cases", "LoRA"]
    result = measured(capsys, *arguments)
    assert result["agreement"]["gradients_relative_difference"] > 0
    assert all(check["passed"] for check in result["checks"])
    tight = {"logprobs": 0.02, "loss": 0.02, "gradients": 1e-6}
    monkeypatch.setitem(megatron_gpu.LIMITS, torch.bfloat16, tight)
    failed = [check["name"] for check in measured(capsys, *arguments, code=1)["checks"] if not check["passed"]]
    assert len(failed) == 1 and "gradients" in failed[0]


def test_an_unknown_case_is_refused_before_anything_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        measured(capsys, "--cases", "LoRA;LoRa, recompute")
    assert "no case LoRa, recompute: choose from LoRA; LoRA, recompute" in capsys.readouterr().err


@pytest.mark.parametrize(("reserved", "passed"), [(0.9, True), (1.1, True), (0.8, False), (1.2, False)])
def test_memory_is_compared_with_the_estimate(reserved: float, passed: bool) -> None:
    (check,) = megatron_gpu.memory_checks("LoRA", figures(reserved_bytes=int(reserved * PLANNED)), CUDA)
    assert check.passed is passed


def test_memory_of_a_cpu_and_of_a_small_model_is_not_compared() -> None:
    assert megatron_gpu.memory_checks("LoRA", figures(), torch.device("cpu")) == []
    assert megatron_gpu.memory_checks("LoRA", figures(estimate_bytes=megatron_gpu.GIB), CUDA) == []


@pytest.mark.parametrize("changes", [{"out_of_memory": "CUDA out of memory"}, {"micro_batch_tokens": 4096}], ids=str)
def test_running_out_of_memory_fails_where_it_was_to_fit_with_a_mocked_card(
    changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for total, failures in ((80 * megatron_gpu.GIB, 1), (2 * megatron_gpu.GIB, 0)):
        card = argparse.Namespace(total_memory=total)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _, card=card: card)
        checks = megatron_gpu.memory_checks("LoRA", figures(**changes), CUDA)
        assert [check.passed for check in checks] == [False] * failures


def test_flops_count_each_weight_twice_forward_and_what_attention_sees() -> None:
    none = megatron_gpu.flops("tiny", 0, 0, 0, trained=True)
    assert none == 0
    layer = 64 * (2 * 64 + 2 * 32 + 3 * 192)
    assert megatron_gpu.flops("tiny", 10, 0, 0, trained=False) == 4 * 2 * layer * 10
    assert megatron_gpu.flops("tiny", 10, 0, 0, trained=True) == 6 * 2 * layer * 10
    assert megatron_gpu.flops("tiny", 0, 10, 0, trained=True) == 2 * 6 * 2 * 64 * 10
    assert megatron_gpu.flops("tiny", 0, 0, 10, trained=True) == 6 * 64 * 512 * 10
