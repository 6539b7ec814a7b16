"""Rows side by side keep to the token budget."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from openclaw_rl.trainer_local.training.batching import PASS_TOKENS, chunks, row


def test_everything_is_in_one_chunk_and_chunks_keep_to_the_budget() -> None:
    lengths = [2 + index % 7 + index % 5 for index in range(50)]
    found = chunks(lengths, 40)
    assert sorted(index for chunk in found for index in chunk) == list(range(50))
    assert all(max(lengths[index] for index in chunk) * len(chunk) <= 40 for chunk in found)
    assert len(found) < 50


def test_a_row_longer_than_the_budget_goes_alone() -> None:
    assert chunks([9, 1, 9, 1], 4) == [[1, 3], [0], [2]]


@given(lengths=st.lists(st.integers(1, 900), max_size=12), budget=st.integers(1, 3000), most=st.integers(0, 400))
def test_no_row_adds_more_padding_than_the_limit(lengths: list[int], budget: int, most: int) -> None:
    found = chunks(lengths, budget, most)
    assert [index for chunk in found for index in chunk] == sorted(range(len(lengths)), key=lengths.__getitem__)
    assert all(len(chunk) == 1 or max(lengths[index] for index in chunk) * len(chunk) <= budget for chunk in found)
    padding = sum(len(chunk) * lengths[chunk[-1]] for chunk in found) - sum(lengths)
    assert padding <= most * (len(lengths) - len(found))


def test_padding_that_costs_more_than_a_pass_is_not_computed() -> None:
    assert len(chunks([100, 2700, 2700], 8192)) == 1
    assert chunks([100, 2700, 2700], 8192, PASS_TOKENS) == [[0], [1, 2]]
    assert chunks([100, 110, 120], 8192, PASS_TOKENS) == [[0, 1, 2]]
    assert chunks([100, 110, 120], 8192, 0) == [[0], [1], [2]]


def test_a_row_knows_its_answer() -> None:
    line = row([1, 2, 3], [4, 5])
    assert (line.ids, line.start, line.length, line.response_length) == ((1, 2, 3, 4, 5), 3, 5, 2)
