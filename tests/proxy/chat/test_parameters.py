"""Sampling parameters of requests."""

from __future__ import annotations

from typing import Any

import pytest

from openclaw_rl.proxy.chat.parameters import read_parameters
from openclaw_rl.proxy.engine.model_names import ModelNames


@pytest.mark.parametrize(
    ("body", "temperature"),
    [({}, 0.2), ({"temperature": None}, 0.2), ({"temperature": 0}, 0.0), ({"temperature": 1}, 1.0)],
)
def test_only_a_request_that_names_no_temperature_gets_the_usual_one(body: dict[str, Any], temperature: float) -> None:
    found = read_parameters(body, names=ModelNames("policy"), max_output_tokens=4, temperature=0.2)
    assert found.sampling.temperature == temperature
