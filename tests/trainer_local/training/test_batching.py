"""Rows side by side keep to the token budget."""

from __future__ import annotations

from openclaw_rl.trainer_local.training.batching import chunks, row


def test_everything_is_in_one_chunk_and_chunks_keep_to_the_budget() -> None:
    lengths = [2 + index % 7 + index % 5 for index in range(50)]
    found = chunks(lengths, 40)
    assert sorted(index for chunk in found for index in chunk) == list(range(50))
    assert all(max(lengths[index] for index in chunk) * len(chunk) <= 40 for chunk in found)
    assert len(found) < 50


def test_a_row_longer_than_the_budget_goes_alone() -> None:
    assert chunks([9, 1, 9, 1], 4) == [[1, 3], [0], [2]]


def test_a_row_knows_its_answer() -> None:
    line = row([1, 2, 3], [4, 5])
    assert (line.ids, line.start, line.length, line.response_length) == ((1, 2, 3, 4, 5), 3, 5, 2)
