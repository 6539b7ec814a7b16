from __future__ import annotations

from shared.records import Sampling
from trainer_local.sglang_wire import params


def test_what_ends_an_answer_reaches_the_engine() -> None:
    sent = params(Sampling(max_tokens=4, stop=("\nUser:",), stop_ids=(3, 5)))
    assert (sent["stop"], sent["stop_token_ids"], sent["max_new_tokens"]) == (["\nUser:"], [3, 5], 4)
    assert {"stop", "stop_token_ids"}.isdisjoint(params(Sampling()))
