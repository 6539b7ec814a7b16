"""The program that compares an engine's logprobs with the trainer's: its limits, and one small run for real."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from bench import engine_mismatch

GB = 10**9


def result(**changes: Any) -> dict[str, Any]:
    near = {"mean": 0.01, "root_mean_square": 0.02, "p99": 0.03, "max": 0.04}
    found = {"base": {"decode, trainer": near}, "versions": {"version 1": {**near, "moved": 0.2}}}
    return {**found, "failed": [], "cut": 0} | changes


def failures(found: dict[str, Any]) -> list[str]:
    return [check.name for check in engine_mismatch.checks_of(found) if not check.passed]


def test_a_version_that_is_served_like_the_base_fails_however_near_it_is() -> None:
    assert failures(result()) == []
    near = {"mean": 0.01, "root_mean_square": 0.02, "moved": 0.025}
    (name,) = failures(result(versions={"version 1": near}))
    assert "relative to how far it has moved" in name
    assert len(failures(result(versions={"version 1": {**near, "moved": 0.0}}))) == 1


def test_requests_that_fail_and_answers_that_are_cut_fail() -> None:
    assert failures(result(failed=["the engine is away"])) == ["requests that failed while versions were published"]
    assert failures(result(cut=1)) == ["answers that were cut while versions were published"]


def test_lent_memory_covers_the_weights_and_comes_back() -> None:
    memory = {"weights": 8 * GB, "free_before": 10 * GB, "free_while_lent": 30 * GB, "free_after": 10 * GB}
    assert failures(result(memory=memory)) == []
    (name,) = failures(result(memory={**memory, "free_while_lent": 15 * GB}))
    assert name.startswith("weights, relative")
    (name,) = failures(result(memory={**memory, "free_after": 20 * GB}))
    assert name.startswith("memory that was not taken back")


@pytest.mark.real
@pytest.mark.timeout(600)
def test_the_embedded_engine_serves_what_the_trainer_computes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        small = ["--answers", "3", "--tokens", "12", "--prompt-tokens", "20", "--swaps", "2", "--clients", "2"]
        kinds = ["--backend", "embedded", "--trainer", "transformers", "--device", "cpu"]
        patch.setattr(sys, "argv", ["engine_mismatch", *kinds, *small, "--json"])
        assert engine_mismatch.main() == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert set(found["base"]) == {"decode, prefill", "decode, trainer", "prefill, trainer"}
    assert set(found["versions"]) == {"version 1", "version 2"}
    for figures in (*found["base"].values(), *found["versions"].values()):
        assert figures["root_mean_square"] < 1e-3
    assert all(figures["moved"] > 0.01 for figures in found["versions"].values())
    assert found["requests"] > 0 and not found["failed"] and not found["cut"]
