from __future__ import annotations

import pytest

from openclaw_rl.shared.engine.answers import (
    BROKEN,
    Refusal,
    Requested,
    read_tokens,
    same_ids,
    sampling_params,
    version_number,
)
from openclaw_rl.shared.records import Sampling


def test_stop_strings_and_stop_ids_reach_the_engine() -> None:
    sent = sampling_params(Sampling(max_tokens=4, stop=("\nUser:",), stop_ids=(3, 5)))
    assert (sent["stop"], sent["stop_token_ids"], sent["max_new_tokens"]) == (["\nUser:"], [3, 5], 4)
    assert {"stop", "stop_token_ids"}.isdisjoint(sampling_params(Sampling()))


@pytest.mark.parametrize(
    ("label", "version"),
    [
        ("default", 0),
        ("7", 7),
        ("0", 0),
        ("7.0aff", 7),
        ("policy-v7-0aff", 7),
        (BROKEN, -1),
        (5, 5),
    ],
)
def test_a_weight_version_names_the_version_that_answers(label: str | int, version: int) -> None:
    assert version_number(label) == version


def test_tokens_that_a_schema_leaves_out_are_none_of_the_likeliest() -> None:
    meta = (
        b'{"meta_info":{"completion_tokens":1,"output_token_logprobs":[[-0.1,4,null]],'
        b'"output_top_logprobs":[[[-0.1,4,null],[null,5,null]]]}}'  # orjson writes minus infinity as null
    )
    read = read_tokens([meta], 0, Requested(top_logprobs=True, version=1), Refusal("http://one"))
    assert (read.ids, read.logprobs, list(read.top_logprobs)) == ([4], [-0.1], [[(-0.1, 4)]])


@pytest.mark.parametrize(
    ("reported", "given", "is_same"),
    [([4, 5], [4, 5], True), ([4, 0, 5, 0], [4, 9, 5, 9], True), ([0, 0], [8, 9], False), ([4], [4, 5], False)],
)
def test_scores_are_of_the_tokens_that_were_given(reported: list[int], given: list[int], is_same: bool) -> None:
    assert same_ids(reported, given) is is_same
