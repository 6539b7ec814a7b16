"""The program that counts what LoRA computes in which precision."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
import torch

from bench import lora_precision
from bench.lora_precision import PrecisionCount


def measured(capsys: pytest.CaptureFixture[str], *, code: int = 0) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["lora_precision", "--size", "tiny", "--tokens", "64", "--rank", "4", "--json"])
        assert lora_precision.main() == code
    [line] = capsys.readouterr().out.splitlines()
    return json.loads(line)


def test_the_trainer_multiplies_in_bfloat16_what_peft_multiplies_in_float32(capsys: pytest.CaptureFixture[str]) -> None:
    result = measured(capsys)
    base, peft, trainer = (result[name] for name in ("base", "peft", "trainer"))
    assert peft["bfloat16_gflop"] == base["bfloat16_gflop"] and peft["float32_gflop"] > 0
    assert trainer["bfloat16_gflop"] == pytest.approx(peft["bfloat16_gflop"] + peft["float32_gflop"])
    assert trainer["float32_gflop"] == 0
    assert trainer["float32_results"] == base["float32_results"] < peft["float32_results"]
    # Two layers; each module's products with A and B, and two gradients of each, of rank 4.
    modules = {"q": (64, 64), "k": (64, 32), "v": (64, 32), "o": (64, 64), "gate": (64, 192), "up": (64, 192)}
    widths = sum(left + right for left, right in [*modules.values(), (192, 64)])
    assert peft["float32_gflop"] == pytest.approx(2 * 3 * 2 * 64 * 4 * widths / 1e9)


def test_an_adapter_left_in_float32_fails(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    own = lora_precision.sides

    def sides(*arguments: Any) -> Any:
        made = own(*arguments)
        return {**made, "trainer": made["peft"]}

    monkeypatch.setattr(lora_precision, "sides", sides)
    result = measured(capsys, code=1)
    assert not any(check["passed"] for check in result["checks"])


def test_products_and_large_results_are_counted_and_views_are_not() -> None:
    left, right = torch.ones(3, 4), torch.ones(4, 5)
    with PrecisionCount(12) as count:
        (left @ right).view(5, 3).t()
        torch.addmm(torch.ones(5).bfloat16(), left.bfloat16(), right.bfloat16())
        left[:, :1] @ right[:1]  # of the inner size 1
        right.new_zeros(11)
    assert count.operations == {torch.float32: 2 * 3 * 4 * 5, torch.bfloat16: 2 * 3 * 4 * 5}
    assert (count.results, count.bytes) == (2, 2 * 4 * 15)
