"""Plans of shared prefixes against what each row alone would see, token by token."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from openclaw_rl.trainer_local.prefix.tree import Packed, apart, pack, passes, prefix_tree
from openclaw_rl.trainer_local.training.batching import Row, row
from tests.trainer_local.plain import mask
from tests.trainer_local.row_by_row import drawn_rows

SYSTEM = list(range(100, 160))


def conversation(turns: int, *, floating: bool) -> list[Row]:
    """An agent's turns; with `floating`, text stands at the end of each prompt that no later prompt has."""
    history = list(SYSTEM)
    rows = []
    for turn in range(turns):
        history += [1000 + 10 * turn + step for step in range(5)]
        answer = [5000 + 10 * turn + step for step in range(4)]
        rows.append(row([*history, *([9000 + turn, 9500 + turn] if floating else [])], answer))
        history += answer
    return rows


def visible(plan: Sequence[Packed], sequence: int, token: int) -> list[tuple[int, int]]:
    """List what a token sees, as `(position, id)`: by the slices of its run, and by the mask of its sequence."""
    packed = plan[sequence]
    run = next(run for run in packed.runs if run.begin <= token < run.end)
    past = [(part.sequence, index) for part in run.past for index in range(part.begin, part.end)]
    before = [(sequence, index) for begin, end in run.before for index in range(begin, end)]
    own = [(sequence, index) for index in range(run.begin, token + 1)]
    assert mask(packed)[token].nonzero().flatten().tolist() == sorted(index for _, index in before + own)
    assert run.visible == len(past) + len(before)
    for part in run.past:
        assert part.sequence in ancestors(plan, sequence)
    return [(plan[holder].positions[index], plan[holder].ids[index]) for holder, index in past + before + own]


def ancestors(plan: Sequence[Packed], sequence: int) -> list[int]:
    found = []
    parent = plan[sequence].parent
    while parent is not None:
        found.append(parent)
        parent = plan[parent].parent
    return found


def check(rows: Sequence[Row], plan: Sequence[Packed]) -> None:
    """Every answer is drawn once, and from inputs that see exactly the row's own tokens before it."""
    assert sorted(index for packed in plan for index in packed.answers) == [
        index for index, line in enumerate(rows) if line.response_length
    ]
    for sequence, packed in enumerate(plan):
        assert len(packed.ids) == len(packed.positions) == packed.tokens == packed.runs[-1].end
        assert [run.begin for run in packed.runs] == [0, *(run.end for run in packed.runs[:-1])]
        for run in packed.runs:
            assert packed.positions[run.begin : run.end] == tuple(range(run.position, run.position + run.tokens))
            assert run.position == run.visible
        for index, tokens in packed.answers.items():
            line = rows[index]
            assert len(tokens) == line.response_length
            for step, token in enumerate(tokens):
                expected = list(enumerate(line.ids[: line.start + step]))
                assert visible(plan, sequence, token) == expected


def prefixes(rows: Sequence[Row]) -> set[tuple[int, ...]]:
    """All different beginnings of inputs: the fewest tokens that can be computed."""
    return {line.ids[:length] for line in rows if line.response_length for length in range(1, len(line.ids))}


@given(rows=drawn_rows(), shortest=st.integers(1, 12))
@settings(deadline=None, max_examples=300)
def test_each_row_sees_its_own_tokens_whatever_is_shared(rows: list[Row], shortest: int) -> None:
    tree = prefix_tree(rows, shortest_prefix=shortest)
    check(rows, passes(tree, 10_000))
    assert tree.tokens <= sum(len(line.ids) - 1 for line in rows if line.response_length)
    for branch in tree.branches:
        assert branch.start == 0 or branch.start >= shortest
        assert (branch.parent is None) == (branch.start == 0)


@given(rows=drawn_rows(), budget=st.integers(1, 40))
@settings(deadline=None, max_examples=100)
def test_rows_that_are_to_share_nothing_do_not_even_where_one_is_all_prefix_of_another(
    rows: list[Row], budget: int
) -> None:
    plan = passes(apart(rows), budget)
    check(rows, plan)
    assert sum(packed.tokens for packed in plan) == sum(len(line.ids) - 1 for line in rows if line.response_length)
    assert all(packed.tokens <= budget or len(packed.runs) == 1 for packed in plan)


@given(rows=drawn_rows())
@settings(deadline=None, max_examples=300)
def test_with_any_length_worth_sharing_no_token_is_computed_twice(rows: list[Row]) -> None:
    assert prefix_tree(rows).tokens == len(prefixes(rows))


@given(rows=drawn_rows(), budget=st.integers(1, 40))
@settings(deadline=None, max_examples=300)
def test_packed_sequences_are_complete_and_keep_to_the_budget(rows: list[Row], budget: int) -> None:
    plan = pack(rows, budget)
    check(rows, plan)
    for packed in plan:
        assert packed.parent is None and not any(run.past for run in packed.runs)
        assert packed.tokens <= budget or len(packed.runs) == 1
    assert sum(packed.tokens for packed in plan) >= prefix_tree(rows).tokens


@given(rows=drawn_rows(), shortest=st.integers(1, 12), budget=st.integers(1, 40))
@settings(deadline=None, max_examples=300)
def test_passes_that_see_earlier_ones_keep_to_the_budget_with_trunks(
    rows: list[Row], shortest: int, budget: int
) -> None:
    tree = prefix_tree(rows, shortest_prefix=shortest)
    plan = passes(tree, budget)
    check(rows, plan)
    for number, packed in enumerate(plan):
        assert packed.tokens <= budget or len(packed.runs) == 1
        # Depth first: a parent is the sequence just before, or one of that one's ancestors.
        assert packed.parent is None or packed.parent in [number - 1, *ancestors(plan, number - 1)]
    answers = sum(line.response_length for line in rows)
    assert tree.tokens <= sum(packed.tokens for packed in plan) <= tree.tokens + answers


@pytest.mark.parametrize("budget", [100_000, 50])
def test_floating_text_makes_a_trunk_with_a_branch_a_turn(budget: int) -> None:
    rows = conversation(20, floating=True)
    tree = prefix_tree(rows, shortest_prefix=20)
    [trunk] = tree.roots
    assert tree.branches[trunk].rows == (19,)
    assert len(tree.children[trunk]) == 19
    branch = 2 + 3  # floating text and all but the last token of an answer
    assert {one.tokens for one in tree.branches[1:]} == {branch}
    plan = passes(tree, budget)
    assert sum(packed.tokens for packed in plan) == tree.tokens == 60 + 20 * 5 + 19 * 4 + 20 * branch
    check(rows, plan)


def test_a_plain_chat_is_one_sequence_with_an_answer_of_each_turn() -> None:
    rows = conversation(20, floating=False)
    [packed] = pack(rows, 1000)
    assert len(packed.runs) == 1
    assert packed.tokens == len(rows[-1].ids) - 1
    assert list(packed.answers) == list(range(20))
    assert torch.equal(mask(packed), torch.ones(packed.tokens, packed.tokens, dtype=torch.bool).tril())


def test_rows_that_share_nothing_are_packed_side_by_side() -> None:
    rows = [row([10 + index] * 5, [1, 2, 3]) for index in range(6)]
    plan = pack(rows, 14)
    assert [packed.tokens for packed in plan] == [14, 14, 14]
    check(rows, plan)


def test_a_tree_larger_than_the_budget_is_cut_between_rows_and_repeats_only_its_trunk() -> None:
    rows = conversation(20, floating=True)
    whole = prefix_tree(rows).tokens
    plan = pack(rows, 300)
    assert max(packed.tokens for packed in plan) <= 300
    assert sum(packed.tokens for packed in plan) <= whole + (len(plan) - 1) * len(rows[-1].ids)
    check(rows, plan)


def test_an_answer_that_two_rows_begin_alike_is_drawn_from_one_sequence() -> None:
    prompt = list(range(50))
    rows = [row(prompt, [60, 61, 62, 63, 64]), row(prompt, [60, 61, 70, 71]), row([*prompt, 80], [60, 61])]
    plan = passes(prefix_tree(rows), 10)
    assert len(plan) == 2
    check(rows, plan)
    [trunk, branches] = plan
    assert list(trunk.answers) == [0]
    assert [run.position for run in branches.runs] == [49, 50]  # from where the second answer's first token is drawn


def test_equal_rows_and_rows_within_other_rows_cost_nothing() -> None:
    rows = [row([1, 2, 3], [4, 5]), row([1, 2, 3], [4, 5]), row([1, 2], [3]), row([1], [2, 3, 4]), row([7], [])]
    [packed] = pack(rows, 100)
    assert packed.tokens == 4
    assert packed.answers == {0: (2, 3), 1: (2, 3), 2: (1,), 3: (0, 1, 2)}


def test_no_rows_make_no_plan() -> None:
    assert pack([], 10) == []
    assert passes(prefix_tree([row([1], [])]), 10) == []


def test_plans_do_not_depend_on_the_order_of_rows() -> None:
    rows = conversation(6, floating=True)
    turned = pack(rows[::-1], 80)
    assert [packed.ids for packed in pack(rows, 80)] == [packed.ids for packed in turned]
