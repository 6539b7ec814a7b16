"""Broken answers, and answers that only look broken."""

from __future__ import annotations

import pytest

from openclaw_rl.learner.guard.degeneration import NOISE, flaws, invalid_call, loops
from openclaw_rl.shared.messages.answer import Answer, Call

PROSE = list(range(100, 160))


@pytest.mark.parametrize(
    "ids",
    [
        [7] * 24,
        [1, 2, 3, *[4, 5, 6, 7] * 6],
        [*PROSE, *PROSE, *PROSE[:48], *PROSE[:48], *PROSE[:48]],
        [1, 2, 3, 4] * 8 + [9, 8, 7, 6, 5, 4, 3, 2, 1],  # went round in circles, and found out of it
    ],
)
def test_going_round_in_circles_is_seen(ids: list[int]) -> None:
    assert loops(ids)


@pytest.mark.parametrize("ids", [[], [7] * 8, PROSE, [*PROSE, *PROSE], [1, 2, 3] * 3, [5, *PROSE, 5, *PROSE[:20]]])
def test_an_answer_that_says_a_thing_twice_is_no_loop(ids: list[int]) -> None:
    assert not loops(ids)


def call(name: str = "add", arguments: str = '{"a": 1}') -> Answer:
    return Answer(tool_calls=(Call("call_1", name, arguments),), finish_reason="tool_calls")


def test_calls_are_valid_where_the_tool_was_offered_and_its_arguments_are_an_object() -> None:
    assert not invalid_call(call(), {"add"})
    assert invalid_call(call("multiply"), {"add"})
    assert invalid_call(call(arguments="{a: 1"), {"add"})
    assert invalid_call(Answer(content="<tool_call> add", irregular=True), {"add"})
    assert not invalid_call(Answer(content="<tool_call> add", irregular=True), set())


def test_each_flaw_has_its_name() -> None:
    assert flaws(Answer(content="It is 12."), PROSE, under_base=-0.2, usual=-0.2) == set()
    assert flaws(Answer(content=" \n"), [5]) == {"empty"}
    assert flaws(call(), PROSE, tools={"add"}) == set()
    assert flaws(Answer(content="so so", finish_reason="length"), [7] * 40) == {"repetition"}
    assert flaws(Answer(content="<tool_call>", irregular=True), PROSE, tools={"add"}) == {"call"}
    noise = flaws(Answer(content="upl orange{"), PROSE, under_base=-0.3 - NOISE, usual=-0.2)
    assert noise == {"noise"}


def test_an_answer_that_the_guard_cut_has_no_flaw_for_that() -> None:
    assert flaws(Answer(content="First, boil the", finish_reason="length"), PROSE) == set()
    thoughts = Answer(reasoning="The user wants", finish_reason="length")
    assert flaws(thoughts, PROSE) == set()
    half_a_call = Answer(content='<tool_call>{"name": "ad', irregular=True, finish_reason="length")
    assert flaws(half_a_call, PROSE, tools={"add"}) == set()
