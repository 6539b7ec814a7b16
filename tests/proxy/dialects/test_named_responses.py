"""The id of a previous response is one of ours, or refused before anything is asked with it."""

from __future__ import annotations

import pytest

from openclaw_rl.proxy.dialects.responses_history import previous_turn
from openclaw_rl.shared.errors import BadRequest

DIGITS = "0123456789abcdef" * 2


def test_our_own_ids_name_a_turn() -> None:
    assert previous_turn({"previous_response_id": f"resp_{DIGITS}"}) == f"turn_{DIGITS}"
    assert previous_turn({}) is None


@pytest.mark.parametrize(
    "identity",
    [
        "resp_",
        "resp_x/../../sessions",
        f"resp_{DIGITS}/answer",
        "resp_\r\nx",
        f"resp_{DIGITS}\n",
        "resp_@127.0.0.1:1/",
        "resp_" + "a" * 1_000_000,
        f"resp_{DIGITS.upper()}",
        f"msg_{DIGITS}",
        7,
    ],
)
def test_other_ids_are_refused_in_a_short_message(identity: object) -> None:
    with pytest.raises(BadRequest, match="not found") as refused:
        previous_turn({"previous_response_id": identity})
    assert len(str(refused.value)) < 500
