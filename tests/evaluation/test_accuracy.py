from __future__ import annotations

import pytest

from openclaw_rl.evaluation.accuracy import final_number, grade
from openclaw_rl.evaluation.problems import Problem

APPLES = Problem("Tom has 5 apples. Tom buys 3 more apples. How many apples does Tom have now?", 8, ("Tom", "apples"))
DAYS = Problem(
    "Mia finds 6 shells every day. How many shells does Mia have after 4 days?", 24, ("Mia", "shells"), ("day", "days")
)


@pytest.mark.parametrize(
    "reply",
    [
        "Tom has 5 apples and buys 3 more. 5 plus 3 is 8, so Tom has 8 apples now.",
        "1. Tom has 5 apples\n2. Tom buys 3 more apples\n3. 5 + 3 = 8\n\n"
        "**Final answer:** Tom has 8 apples now.\n\n\\boxed{8}",
        "**Step 1:** 5 + 3 = **8**\n\nTom has **8** apples.",
        "$5 + 3 = 8$, so Tom's apples: 8.",
    ],
)
def test_right_answers_in_any_style_are_right(reply: str) -> None:
    assert grade(APPLES, reply).right


@pytest.mark.parametrize(
    "reply",
    [
        "Tom has 5 apples and buys 3 more, so Tom has 9 apples now.",
        "Ben has 5 apples and buys 3 more, so Ben has 8 apples now.",
        "Tom has 5 pears and buys 3 more, so Tom has 8 pears now.",
        "Tom has 5 apples and Ben buys 3 more, so Tom has 8 apples now.",
        "8",
        "",
        "Tom has 8 apples. No, 7.",
        "Tom has 18 apples.",
    ],
)
def test_wrong_numbers_swapped_names_and_swapped_objects_are_wrong(reply: str) -> None:
    assert not grade(APPLES, reply).right


def test_what_is_wrong_can_be_told_apart() -> None:
    verdict = grade(APPLES, "Ben has 8 pears now.")
    assert verdict.number
    assert not verdict.mentions
    assert verdict.strangers == {"Ben", "pears"}


def test_a_number_that_counts_something_else_is_not_the_answer() -> None:
    assert final_number(DAYS, "6 times 4 is 24, so Mia has 24 shells after 4 days.") == 24
    assert grade(DAYS, "Mia has 24 shells after 4 days.").right
    assert not grade(DAYS, "Mia has 20 shells after 4 days.").right


def test_list_numbers_are_not_answers() -> None:
    assert final_number(APPLES, "1. The answer is 8\n2. apples for Tom") == 8


def test_large_and_negative_numbers_are_read_whole() -> None:
    assert final_number(APPLES, "That makes 1,250 apples.") == 1250
    assert final_number(APPLES, "It is -3 apples.") == -3
    assert final_number(APPLES, "no idea") is None
