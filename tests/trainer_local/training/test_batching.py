"""Rows side by side keep to the token budget."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_rl.trainer_local.training import batching
from openclaw_rl.trainer_local.training.batching import cheap_chunks, chunks, row


def test_everything_is_in_one_chunk_and_chunks_keep_to_the_budget() -> None:
    lengths = [2 + index % 7 + index % 5 for index in range(50)]
    found = chunks(lengths, 40)
    assert sorted(index for chunk in found for index in chunk) == list(range(50))
    assert all(max(lengths[index] for index in chunk) * len(chunk) <= 40 for chunk in found)
    assert len(found) < 50


def test_a_row_longer_than_the_budget_goes_alone() -> None:
    assert chunks([9, 1, 9, 1], 4) == [[1, 3], [0], [2]]


def cost(lengths: list[int], found: list[list[int]]) -> int:
    return sum(len(chunk) * max(lengths[index] for index in chunk) + batching.PASS_TOKENS for chunk in found)


@given(lengths=st.lists(st.integers(1, 900), max_size=12), budget=st.integers(1, 3000))
def test_cheap_chunks_have_every_row_once_and_cost_least(lengths: list[int], budget: int) -> None:
    found = cheap_chunks(lengths, budget)
    order = sorted(range(len(lengths)), key=lambda index: (lengths[index], index))
    assert [index for chunk in found for index in chunk] == order
    assert all(len(chunk) == 1 or max(lengths[index] for index in chunk) * len(chunk) <= budget for chunk in found)
    assert cost(lengths, found) <= cost(lengths, chunks(lengths, budget))
    assert cost(lengths, found) <= cost(lengths, [[index] for index in order])


def test_padding_that_costs_more_than_a_pass_is_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = [100, 2700, 2700]
    assert len(chunks(lengths, 8192)) == 1
    assert cheap_chunks(lengths, 8192) == [[0], [1, 2]]
    assert cheap_chunks([100, 110, 120], 8192) == [[0, 1, 2]]
    monkeypatch.setattr(batching, "PASS_TOKENS", 0)
    assert cheap_chunks([100, 110, 120], 8192) == [[0], [1], [2]]


def test_a_row_knows_its_answer() -> None:
    line = row([1, 2, 3], [4, 5])
    assert (line.ids, line.start, line.length, line.response_length) == ((1, 2, 3, 4, 5), 3, 5, 2)
