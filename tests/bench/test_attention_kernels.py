"""The program that times attention's kernels, with the one that a CPU has."""

from __future__ import annotations

import json
import sys

import pytest

from bench import attention_kernels


def test_each_length_has_a_first_and_later_calls(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["attention_kernels", "--device", "cpu", "--tokens", "16", "32", "--json"])
    assert attention_kernels.main() == 0
    found = json.loads(capsys.readouterr().out)["milliseconds"]
    assert list(found) == ["16", "32"]
    for kernels in found.values():
        assert list(kernels) == ["flash"]
        assert all(part > 0 for call in ("first", "later") for part in kernels["flash"][call])
