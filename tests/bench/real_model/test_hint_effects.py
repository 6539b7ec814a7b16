"""The figures of what a request changes in the likelihood of answers, without a model."""

from __future__ import annotations

import pytest

from bench.real_model import hint_effects


def test_effects_are_compared_answer_by_answer_with_those_of_the_unrelated_request() -> None:
    found = hint_effects._summary([[-3.0, -4.0, -5.0, -9.0], [-6.0, -6.0, -6.0, -5.0]])
    assert found["count"] == 2
    assert [found[name][0] for name in ("alone", "unrelated", "compared")] == pytest.approx([-5.0, -7.0, 2.0])
    assert (found["deviation"], found["likelier"]) == (3.0, 0.5)
