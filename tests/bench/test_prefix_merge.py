"""The program that compares merged with single turns, on conversations small enough to wait for."""

from __future__ import annotations

import json
import sys
from itertools import pairwise

import pytest

from bench.conversation import conversation
from bench.prefix_merge import main


def test_a_floating_context_keeps_prompts_from_continuing_each_other() -> None:
    floating, plain = (conversation(4, 20, floating=floating) for floating in (True, False))
    for turns, continues in ((floating, False), (plain, True)):
        for earlier, later in pairwise(turns):
            whole = [*earlier.prompt_ids, *earlier.response_ids]
            assert (list(later.prompt_ids[: len(whole)]) == whole) is continues
    assert all(turn.explicit and turn.reward for turn in floating)


def test_fewer_tokens_give_the_same_gradients(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["prefix_merge", "--turns", "2", "6", "--scale", "20", "--json"])
    assert main() == 0
    [line] = capsys.readouterr().out.splitlines()
    result = json.loads(line)
    assert list(result["turns"]) == ["2", "6"]
    for kind in ("turns", "without_floating_context"):
        for figures in result[kind].values():
            assert figures["tokens_merged"] < figures["tokens_per_turn"]
            assert figures["ratio"] == pytest.approx(figures["tokens_merged"] / figures["tokens_per_turn"], abs=1e-4)
            assert figures["largest_gradient"] > 0
            assert figures["max_grad_diff"] <= 1e-4 * figures["largest_gradient"]
    assert result["turns"]["6"]["ratio"] < result["turns"]["2"]["ratio"]
