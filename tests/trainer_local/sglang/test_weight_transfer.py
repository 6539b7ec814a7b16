"""Batches of weights on their way to SGLang; that they arrive is shown in `tests/real/test_sglang_whole.py`."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from openclaw_rl.trainer_local.sglang.versions import served_type
from openclaw_rl.trainer_local.sglang.weight_transfer import Batch, _flatten, adapter_payload, batched, in_type_of
from tests.trainer_local.serving import write_adapter, write_model


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


@pytest.mark.parametrize(("dtype", "sent"), [("bfloat16", torch.bfloat16), ("float32", torch.float32)])
def test_an_adapter_is_sent_in_the_type_that_the_engine_computes_in(
    tmp_path: Path, dtype: str, sent: torch.dtype
) -> None:
    adapter = write_adapter(write_model(tmp_path / "base"), tmp_path / "adapter")
    known = load_file(adapter / "adapter_model.safetensors")
    assert {part.dtype for part in known.values()} == {torch.float32}
    fields = adapter_payload("policy-v1-a", str(adapter), 2, dtype)
    first, second = fields["serialized_named_tensors"]  # SGLang takes one a rank
    assert first == second
    found = pickle.loads(base64.b64decode(first))
    assert found.keys() == known.keys() and fields["config_dict"]["peft_type"] == "LORA"
    assert all(found[name].dtype == sent and torch.equal(found[name], known[name].to(sent)) for name in known)


def test_the_type_that_an_engine_computes_in_is_its_models_unless_it_was_given_one(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"dtype": "bfloat16"}')
    assert served_type(str(tmp_path), {"dtype": "auto"}) == "bfloat16"
    assert served_type("", {"dtype": "auto", "model_path": str(tmp_path)}) == "bfloat16"
    assert served_type(str(tmp_path), {"dtype": "float16"}) == "float16"
    assert served_type(str(tmp_path / "none"), {"dtype": "auto"}) == ""
