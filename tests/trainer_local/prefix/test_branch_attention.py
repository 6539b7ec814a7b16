"""Attention of branches in one call, on a CPU: what it is given, what becomes of its results, and when it is not used.
Its kernels need CUDA (`tests/real/test_prefix_cuda.py`); torch computes the same without one, but no gradients.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import cache
from queue import Queue
from random import Random
from threading import Event
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.exc import FailOnRecompileLimitHit, TorchDynamoException
from torch.nn.attention.flex_attention import BlockMask, create_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode
from transformers import AutoModelForCausalLM

from openclaw_rl.trainer_local.megatron.attention import CurrentSequence, PackedAttention
from openclaw_rl.trainer_local.prefix import branch_attention
from openclaw_rl.trainer_local.prefix.branch_mask import branch_mask
from openclaw_rl.trainer_local.prefix.capability import Sharing
from openclaw_rl.trainer_local.prefix.tree import Packed, pack
from openclaw_rl.trainer_local.training.batching import Row, row
from openclaw_rl.trainer_local.training.recompute import recomputed_layers, recomputing
from tests.trainer_local.row_by_row import SHAPES, assert_same, one_by_one, together
from tests.trainer_local.tiny import write_policy

HEADS, GROUPS, WIDTH = 6, 3, 8
FORKED = {name: rows for name, rows in SHAPES.items() if name != "chain"}


def dense(query: Tensor, key: Tensor, value: Tensor, mask: BlockMask, scale: float | None) -> Tensor:
    """The same by torch's own attention and the mask of all pairs."""
    shown = create_mask(mask.mask_mod, 1, 1, query.shape[2], key.shape[2], "cpu")
    key, value = (part.repeat_interleave(query.shape[1] // key.shape[1], dim=1) for part in (key, value))
    return scaled_dot_product_attention(query, key, value, attn_mask=shown, scale=scale)


@pytest.fixture(autouse=True)
def untried() -> Iterator[None]:
    """Nothing is known of FlexAttention, before and after."""
    branch_attention.usable.cache_clear()
    yield
    branch_attention.FlexFailure.reason = ""
    branch_attention.usable.cache_clear()


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let it be used here, computed densely; the tokens of each call."""
    calls: list[int] = []

    def counted(query: Tensor, *others: Any) -> Tensor:
        calls.append(query.shape[2])
        return dense(query, *others)

    monkeypatch.setattr(branch_attention, "usable", lambda *_: True)
    monkeypatch.setattr(branch_attention, "attention", counted)
    return calls


def tree() -> Packed:
    """A trunk with branches and branches of branches, of more than a block, and a row that shares nothing."""
    draw = Random(3)
    trunk = [draw.randrange(9) for _ in range(300)]
    rows = [
        row([*trunk[:length], *(draw.randrange(9) for _ in range(40))], [1, 2]) for length in (300, 120, 250, 30, 250)
    ]
    rows += [row([*rows[1].ids[:140], *(draw.randrange(9) for _ in range(20))], [3]), row([8, 8, 8], [1, 2, 3])]
    (packed,) = pack(rows, 10_000)
    return packed


def attended(packed: Packed, dtype: torch.dtype) -> list[Tensor]:
    """Megatron-core's attention of `packed` and, where there are any, its gradients."""
    torch.manual_seed(1)
    shapes = [(packed.tokens, 1, heads, WIDTH) for heads in (HEADS, GROUPS, GROUPS)]
    inputs = [torch.randn(shape, dtype=dtype).requires_grad_(torch.is_grad_enabled()) for shape in shapes]
    output = PackedAttention(CurrentSequence(packed.runs))(*inputs)
    if not torch.is_grad_enabled():
        return [output]
    weights = torch.arange(output.numel(), dtype=dtype).view_as(output).sin()
    return [output, *torch.autograd.grad((output * weights).sum(), inputs)]


def test_outputs_and_gradients_are_those_of_copies(used: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    packed = tree()
    found = attended(packed, torch.float64)
    assert used == [packed.tokens - next(run.begin for run in packed.runs if run.before)]
    monkeypatch.undo()
    wanted = attended(packed, torch.float64)
    assert all(torch.allclose(*pair, atol=1e-12) for pair in zip(found, wanted, strict=True))


@torch.no_grad()
def test_flex_attention_shows_what_copies_show(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = tree()
    (wanted,) = attended(packed, torch.float32)
    monkeypatch.setattr(branch_attention, "usable", lambda *_: True)
    monkeypatch.setattr(branch_attention, "_compiled", lambda: flex_attention)
    monkeypatch.setattr("torch.nn.attention.flex_attention._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
    (found,) = attended(packed, torch.float32)
    assert torch.allclose(found, wanted, atol=1e-5) and not torch.equal(found, wanted)


class CopiedKeys(TorchFunctionMode):
    """Counts the elements that are joined into keys and values of one call."""

    elements = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if func is torch.cat and found.shape[1] == GROUPS:
            self.elements += found.numel()
        return found


@torch.no_grad()
def test_no_key_or_value_is_copied(used: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    packed = tree()
    with CopiedKeys() as together:
        attended(packed, torch.float32)
    monkeypatch.undo()
    with CopiedKeys() as apart:
        attended(packed, torch.float32)
    branches = [run for run in packed.runs if run.before]
    assert apart.elements == 2 * GROUPS * WIDTH * sum(run.visible + run.tokens for run in branches)
    assert apart.elements > 2 * GROUPS * WIDTH * packed.tokens, "more than all keys and values, in every layer"
    assert together.elements == 0 and used


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = write_policy(tmp_path_factory.mktemp("policy"), initializer_range=0.2)
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64).eval()


@pytest.mark.parametrize(("budget", "recompute"), [(210, True), (100_000, False)])
@pytest.mark.parametrize("rows", FORKED.values(), ids=FORKED)
def test_transformers_gradients_are_those_of_each_row_alone(
    used: list[int], model: Any, rows: Sequence[Row], budget: int, recompute: bool
) -> None:
    with recomputing(recomputed_layers(model) if recompute else []):
        found = together(model, rows, budget=budget, share=Sharing.TREES)
    assert_same(found, one_by_one(model, rows))
    assert used


def test_it_is_not_used_on_a_cpu(caplog: pytest.LogCaptureFixture) -> None:
    assert not branch_attention.usable(torch.device("cpu"), torch.float32, 4, 2, 64)
    assert not caplog.records


CUDA = (torch.device("cuda"), torch.float32, HEADS, GROUPS, WIDTH)


def test_it_is_used_where_a_trial_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = branch_attention._trial
    monkeypatch.setattr(branch_attention, "attention", dense)
    monkeypatch.setattr(branch_attention, "_trial", lambda _, *others: trial(torch.device("cpu"), *others))
    assert branch_attention.usable(*CUDA)


def test_it_is_not_used_where_a_trial_differs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def careless(query: Tensor, key: Tensor, value: Tensor, mask: BlockMask, scale: float | None) -> Tensor:
        return scaled_dot_product_attention(query, key, value, scale=scale, enable_gqa=True)

    trial = branch_attention._trial
    monkeypatch.setattr(branch_attention, "attention", careless)
    monkeypatch.setattr(branch_attention, "_trial", lambda _, *others: trial(torch.device("cpu"), *others))
    with caplog.at_level(logging.WARNING):
        assert not branch_attention.usable(*CUDA)
        assert not branch_attention.usable(*CUDA)
    (said,) = caplog.messages
    assert "shared prefixes are copied for each branch: ArithmeticError: results of torch.float32 differ by" in said


@pytest.mark.parametrize("call", [1, 2], ids=["with gradients", "without"])
def test_it_is_not_used_where_a_trial_gives_no_number(
    call: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[int] = []

    def broken(*arguments: Any) -> Tensor:
        calls.append(1)
        return dense(*arguments) * (float("nan") if len(calls) == call else 1.0)

    trial = branch_attention._trial
    monkeypatch.setattr(branch_attention, "attention", broken)
    monkeypatch.setattr(branch_attention, "_trial", lambda _, *others: trial(torch.device("cpu"), *others))
    assert not branch_attention.usable(*CUDA)
    assert "differ by nan" in caplog.text


OUT_OF_MEMORY = [
    torch.OutOfMemoryError("CUDA out of memory."),
    RuntimeError("Triton Error [CUDA]: out of memory"),
    TorchDynamoException("backend='inductor' raised:\nOutOfMemoryError: CUDA out of memory."),
]


@pytest.mark.parametrize("error", OUT_OF_MEMORY, ids=lambda error: type(error).__name__)
def test_a_trial_that_runs_out_of_memory_decides_nothing(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: Any) -> float:
        raise error

    monkeypatch.setattr(branch_attention, "_trial", full)
    with pytest.raises(type(error), match="out of memory"):
        branch_attention.usable(*CUDA)
    monkeypatch.setattr(branch_attention, "_trial", lambda *_: 0.0)
    assert branch_attention.usable(*CUDA) and not caplog.records


UNCOMPILED = [TorchDynamoException("no compiler\nand more"), FailOnRecompileLimitHit("no compiler")]


def fail(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Let it be usable, and fail for the next tensors."""

    def failing(*_: Any) -> Tensor:
        raise error

    monkeypatch.setattr(branch_attention, "usable", cache(lambda *_: True))
    monkeypatch.setattr(branch_attention, "attention", failing)


@pytest.mark.parametrize("error", UNCOMPILED, ids=lambda error: type(error).__name__)
def test_a_kernel_that_cannot_be_compiled_is_said_once_and_copies_are_used(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    packed = tree()
    wanted = attended(packed, torch.float32)
    fail(monkeypatch, error)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            found = attended(packed, torch.float32)
            assert all(torch.equal(*pair) for pair in zip(found, wanted, strict=True))
    assert [said.rpartition(": ")[2] for said in caplog.messages] == ["no compiler"]


@pytest.mark.parametrize("error", UNCOMPILED, ids=lambda error: type(error).__name__)
def test_transformers_copies_keys_of_earlier_sequences_where_a_kernel_cannot_be_compiled(
    error: Exception, model: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rows = FORKED["forks of forks"]
    fail(monkeypatch, error)
    found = together(model, rows, budget=210, share=Sharing.TREES)
    assert_same(found, one_by_one(model, rows))
    assert [said.rpartition(": ")[2] for said in caplog.messages] == ["no compiler"]


@pytest.mark.parametrize("error", OUT_OF_MEMORY, ids=lambda error: type(error).__name__)
def test_memory_that_lacks_is_not_taken_for_the_compilers_failure(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(monkeypatch, error)
    with pytest.raises(type(error), match="out of memory"):
        attended(tree(), torch.float32)
    assert not branch_attention.FlexFailure.reason


@torch.no_grad()
def test_other_lengths_compile_nothing_again() -> None:
    """The trial's kernel is for all trees whose branches have more than a block, and another for the others. Counted
    with a backend that compiles nothing.
    """
    compiled: list[int] = []

    def backend(graph: Any, _: Any) -> Any:
        compiled.append(1)
        return graph.forward

    attend = torch.compile(flex_attention, dynamic=True, fullgraph=True, backend=backend)
    counts = []
    plan = [(branch_attention.TRIED, branch_attention.PAST), (tree().runs, {}), (tree().runs[:3], {})]
    for runs, past in plan:
        mask = branch_mask(runs, past, torch.device("cpu"))
        query, key = (torch.randn(1, n, size, 16) for n, size in zip((4, 2), mask.shape[-2:], strict=True))
        attend(query, key, key, block_mask=mask, enable_gqa=True)
        counts.append(len(compiled))
    assert counts == [1, 1, 2]


def test_a_compiler_that_takes_too_long_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ended = Event()
    monkeypatch.setattr(branch_attention, "TRIAL_SECONDS", 0.05)
    stances: Queue[str] = Queue()
    monkeypatch.setattr(torch.compiler, "set_stance", stances.put)
    monkeypatch.setattr(branch_attention, "_trial", lambda *_: ended.wait(30))
    with caplog.at_level(logging.WARNING):
        assert not branch_attention.usable(torch.device("cuda", 0), torch.bfloat16, 4, 2, 64)
    assert stances.get(timeout=1) == "force_eager" and stances.empty(), "others would wait for its lock"
    ended.set()
    assert stances.get(timeout=30) == "default"
    assert "TimeoutError: it was not compiled in 0.05 s" in caplog.text
    assert branch_attention.FlexFailure.reason == "TimeoutError: it was not compiled in 0.05 s"
