"""Batches of weights on their way to SGLang; that they arrive is shown in `tests/real/test_sglang_whole.py`."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from openclaw_rl.trainer_local.sglang.weight_transfer import Batch, _flatten, batched, in_type_of


def test_batches_hold_no_more_than_they_may() -> None:
    named = [(name, torch.zeros(size)) for name, size in (("a", 10), ("b", 20), ("c", 100), ("d", 1))]
    assert [[name for name, _ in batch] for batch in batched(named, 130)] == [["a", "b"], ["c"], ["d"]]


def test_a_batch_in_one_piece_of_memory_is_the_same_tensors() -> None:
    batch: Batch = [
        ("half", torch.tensor([1.5, 2.5, 3.5], dtype=torch.bfloat16)),
        ("single", torch.arange(6.0).view(2, 3).t()),
        ("flag", torch.tensor([True, False, True])),
        ("number", torch.tensor(7)),
    ]
    flat, views = _flatten(batch)
    given = dict(batch)
    assert {name for name, _ in views} == given.keys()
    for name, view in views:
        assert torch.equal(view, given[name]) and view.dtype == given[name].dtype
        assert view.untyped_storage().data_ptr() == flat.untyped_storage().data_ptr()


def test_weights_are_rounded_as_the_engine_would_round_them() -> None:
    batch: Batch = [("w", torch.tensor([1.0001], dtype=torch.float32)), ("n", torch.tensor([3]))]

    def batches() -> Iterator[Batch]:
        yield batch

    ((weight, count),) = in_type_of(batches, "bfloat16")()
    assert weight[1].dtype == torch.bfloat16 and count[1].dtype == torch.int64
    assert in_type_of(batches, "float32") is batches and in_type_of(batches, "auto") is batches
