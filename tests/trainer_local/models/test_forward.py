"""Logits and gradients of answers do not depend on how rows are put together; in float64, so that "the same" can be
strict.
"""

from __future__ import annotations

import sys
from typing import Any

import hypothesis
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM

from openclaw_rl.shared.objective import losses
from openclaw_rl.trainer_local.models import forward
from openclaw_rl.trainer_local.models.forward import run_rows
from openclaw_rl.trainer_local.models.head import output_head
from openclaw_rl.trainer_local.prefix import attention
from openclaw_rl.trainer_local.prefix.attention import Grain
from openclaw_rl.trainer_local.prefix.capability import Sharing
from openclaw_rl.trainer_local.training.batching import Row, row
from openclaw_rl.trainer_local.training.slices import AnswerStates
from tests.shared.saved_tensors import saved_bytes
from tests.trainer_local.row_by_row import (
    PREFIX,
    ROWS,
    SHAPES,
    assert_same,
    conversation,
    drawn_rows,
    one_by_one,
    together,
)
from tests.trainer_local.tiny import VOCABULARY, write_policy


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    # Weights large enough for attention to matter.
    folder = write_policy(tmp_path_factory.mktemp("policy"), initializer_range=0.2)
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64).eval()


@pytest.fixture
def computed(model: Any, request: pytest.FixtureRequest) -> list[int]:
    """Tokens of each call of the model."""
    counts: list[int] = []
    handle = model.get_input_embeddings().register_forward_hook(lambda _, ids, __: counts.append(ids[0].numel()))
    request.addfinalizer(handle.remove)
    return counts


@pytest.mark.parametrize("share", list(Sharing))
@pytest.mark.parametrize("budget", [1, 230, 100_000])
def test_logits_and_gradients_are_those_of_each_row_alone(model: Any, budget: int, share: Sharing) -> None:
    assert_same(together(model, ROWS, budget=budget, share=share), one_by_one(model, ROWS))


@pytest.mark.parametrize("budget", [1, 210, 100_000])
@pytest.mark.parametrize("rows", SHAPES.values(), ids=SHAPES)
def test_every_shape_of_tree_gives_the_gradients_of_its_rows_alone(model: Any, rows: list[Row], budget: int) -> None:
    assert_same(together(model, rows, budget=budget, share=Sharing.TREES), one_by_one(model, rows))


@given(
    rows=drawn_rows(),
    budget=st.integers(1, 60),
    grain=st.builds(Grain, st.integers(1, 6), st.just(100), st.integers(0, 40), st.sampled_from([2, sys.maxsize])),
)
@hypothesis.settings(deadline=None, max_examples=40)
def test_any_tree_in_any_pieces_gives_the_gradients_of_its_rows_alone(
    model: Any, rows: list[Row], budget: int, grain: Grain
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forward, "SHORTEST_SHARED_PREFIX", 1)
        patch.setattr(forward, "LEAST_SHARE", 0.0)
        patch.setattr(attention, "ON_CPU", grain)
        found = together(model, rows, budget=budget, share=Sharing.TREES)
    assert_same(found, one_by_one(model, rows))


@pytest.mark.parametrize("budget", [100_000, 64])
def test_an_agents_turns_cost_one_trunk_and_their_own_tokens(model: Any, computed: list[int], budget: int) -> None:
    rows = conversation(6, floating=True)
    together(model, rows, budget=budget, share=Sharing.TREES)
    own = 2 + 3 - 1  # floating context, and an answer without its last token
    assert sum(computed) == 200 + 6 * 3 + 5 * 3 + 6 * own
    assert len(computed) == (1 if budget > 1000 else 2)


def test_turns_of_a_plain_chat_cost_the_last_one(model: Any, computed: list[int]) -> None:
    rows = conversation(6, floating=False)
    together(model, rows, budget=100_000, share=Sharing.CHAINS)
    assert computed == [rows[-1].length - 1]


def test_without_sharing_each_row_is_computed_as_a_whole(model: Any, computed: list[int]) -> None:
    rows = conversation(6, floating=False)
    together(model, rows, budget=1, share=Sharing.ROWS)
    assert computed == [line.length - 1 for line in rows]


UNEVEN = [row([2 + number, *range(2, 2 + length)], [7, 8, 9]) for number, length in enumerate((1, 4, 9, 30, 38))]


def test_rows_of_uneven_length_are_packed_without_padding(model: Any, computed: list[int]) -> None:
    found = together(model, UNEVEN, budget=100, share=Sharing.TREES)
    assert sum(computed) == sum(line.length - 1 for line in UNEVEN) and len(computed) == 1
    computed.clear()
    padded = together(model, UNEVEN, budget=100, share=Sharing.CHAINS)
    assert sum(computed) > 1.1 * sum(line.length - 1 for line in UNEVEN)
    assert_same(found, padded)
    assert_same(found, one_by_one(model, UNEVEN))


def test_rows_that_cannot_be_packed_have_no_more_padding_than_a_pass_is_worth(
    model: Any, computed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = sum(line.length - 1 for line in UNEVEN)
    monkeypatch.setattr(forward, "PASS_TOKENS", 3)
    for share in (Sharing.ROWS, Sharing.CHAINS):
        found = together(model, UNEVEN, budget=1000, share=share)
        assert own <= sum(computed) <= own + 3 * len(UNEVEN) and 1 < len(computed) < len(UNEVEN)
        assert_same(found, one_by_one(model, UNEVEN))
        computed.clear()


def test_rows_of_even_length_are_put_side_by_side(model: Any) -> None:
    shapes: list[tuple[int, ...]] = []
    handle = model.get_input_embeddings().register_forward_hook(lambda _, ids, __: shapes.append(tuple(ids[0].shape)))
    together(model, [row([number, 3, 4, 5], [6, 7]) for number in (8, 9, 10)], budget=100, share=Sharing.TREES)
    handle.remove()
    assert shapes == [(3, 5)]


def test_packed_rows_do_not_see_each_other(model: Any) -> None:
    others = [row([1 + line.ids[0], *(3 + token % 40 for token in line.ids[1:])], [9, 9]) for line in UNEVEN[:-1]]
    found = [
        together(model, [*rest, UNEVEN[-1]], budget=1000, share=Sharing.TREES)[0][-1] for rest in (UNEVEN[:-1], others)
    ]
    assert torch.allclose(found[0], found[1], atol=1e-12)


def test_rows_that_share_little_are_not_taken_apart(model: Any, computed: list[int]) -> None:
    together(model, [row([*range(2, 12), *[side] * 30], [3]) for side in (20, 21)], budget=1, share=Sharing.TREES)
    assert computed == [40, 40]


@pytest.mark.parametrize("aligned", [8, sys.maxsize], ids=["long branches", "short branches"])
def test_branches_keep_no_copies_of_the_trunks_keys(model: Any, aligned: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token of a branch keeps as much for the backward pass as any other."""
    monkeypatch.setattr(attention, "ON_CPU", Grain(step=128, largest=1 << 21, slack=0, aligned=aligned))

    def kept(rows: list[Row]) -> int:
        def run() -> None:
            run_rows(model, rows, lambda _: None, micro_batch_tokens=100_000, share=Sharing.TREES, backward=True)

        return saved_bytes(run, [*model.parameters(), *model.buffers()])

    turns = [row([*PREFIX, side, *range(2, 12)], [7, 8]) for side in (21, 22, 23, 24)]
    plain = row([*PREFIX, *range(2, 2 + 3 * 12)], [7])
    assert kept(turns) < 1.1 * kept([plain])


def test_attention_is_the_models_own_again_afterwards(model: Any) -> None:
    before = model.config._attn_implementation
    together(model, ROWS, budget=100, share=Sharing.TREES)
    assert model.config._attn_implementation == before


def test_the_first_answer_token_is_scored_from_the_last_prompt_token(model: Any) -> None:
    found, _ = together(model, [row([4], [5, 6])], budget=100, share=Sharing.TREES)
    after_prompt = losses.log_softmax(model(input_ids=torch.tensor([[4]])).logits[0])
    assert torch.allclose(found[0][0], after_prompt[0], atol=1e-10)


def test_an_answer_without_tokens_is_left_out(model: Any) -> None:
    seen: list[int] = []

    def use(answers: AnswerStates) -> None:
        seen.extend(answers.rows)
        assert answers.head(answers.states).shape == (2, VOCABULARY)

    run_rows(
        model,
        [row([4, 5], []), row([4], [5, 6])],
        use,
        micro_batch_tokens=100,
        share=Sharing.TREES,
        backward=False,
    )
    assert seen == [1]


def test_vocabulary_logits_are_made_at_answer_positions_only(model: Any) -> None:
    widths: list[int] = []
    handle = output_head(model).register_forward_hook(lambda _, __, output: widths.append(output.shape[1]))
    try:
        together(model, ROWS, budget=100_000, share=Sharing.TREES)
    finally:
        handle.remove()
    assert sum(widths) == sum(line.response_length for line in ROWS)
