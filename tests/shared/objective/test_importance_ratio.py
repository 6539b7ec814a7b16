from __future__ import annotations

from typing import Any

import pytest

from openclaw_rl.shared.objective.importance_ratio import no_ratio, reshaped
from openclaw_rl.shared.records import Sampling


@pytest.mark.parametrize("plain", [{}, {"temperature": 0.7}, {"seed": 3, "max_tokens": 5, "stop": ("END",)}], ids=str)
def test_a_temperature_alone_leaves_a_ratio(plain: dict[str, Any]) -> None:
    assert no_ratio(Sampling(**plain)) == ""


@pytest.mark.parametrize(
    ("shaped", "parameters"),
    [
        ({"top_p": 0.9}, "top_p 0.9"),
        ({"top_k": 40}, "top_k 40"),
        ({"min_p": 0.05}, "min_p 0.05"),
        ({"frequency_penalty": -0.5}, "frequency_penalty -0.5"),
        ({"repetition_penalty": 1.1, "top_p": 0.5}, "top_p 0.5 and repetition_penalty 1.1"),
        ({"json_schema": '{"type":"object"}'}, "a JSON schema"),
    ],
    ids=str,
)
def test_parameters_that_reshape_the_distribution_are_named(shaped: dict[str, Any], parameters: str) -> None:
    assert f"with {parameters}, so" in no_ratio(Sampling(**shaped))


def test_logprobs_at_another_temperature_than_the_sampling_leave_none() -> None:
    reason = no_ratio(Sampling(temperature=0.7, unscaled=True))
    assert reason == "sampled at temperature 0.7 by an engine that reports its logprobs at 1"


def test_greedy_answers_have_no_ratio_and_filters_change_nothing_of_them() -> None:
    assert "greedily" in no_ratio(Sampling(temperature=0))
    assert reshaped(Sampling(temperature=0, top_p=0.5, top_k=3)) == ""
    assert reshaped(Sampling(temperature=0, presence_penalty=1.0)) == "presence_penalty 1"
