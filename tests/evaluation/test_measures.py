from __future__ import annotations

from itertools import islice

import pytest

from openclaw_rl.evaluation.measures import (
    answer_form,
    comment_form,
    detail_score,
    final_number,
    friendly_score,
    is_right,
    marks,
    says_right,
    warmth,
)
from openclaw_rl.evaluation.problems import Problem, solutions

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
    assert is_right(APPLES, reply)


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
        "Ben has 8 pears now.",
    ],
)
def test_wrong_numbers_swapped_names_and_swapped_objects_are_wrong(reply: str) -> None:
    assert not is_right(APPLES, reply)


def test_a_number_that_counts_something_else_is_not_the_answer() -> None:
    assert final_number(DAYS, "6 times 4 is 24, so Mia has 24 shells after 4 days.") == 24
    assert is_right(DAYS, "Mia has 24 shells after 4 days.")
    assert not is_right(DAYS, "Mia has 20 shells after 4 days.")


def test_list_numbers_are_not_answers() -> None:
    assert final_number(APPLES, "1. The answer is 8\n2. apples for Tom") == 8


def test_large_and_negative_numbers_are_read_whole() -> None:
    assert final_number(APPLES, "That makes 1,250 apples.") == 1250
    assert final_number(APPLES, "It is -3 apples.") == -3
    assert final_number(APPLES, "no idea") is None


PLAIN = "Tom has 5 apples and buys 3 more. 5 + 3 = 8, so Tom has 8 apples now."


def test_plain_prose_is_prose() -> None:
    assert answer_form(PLAIN) == "prose"
    assert answer_form("5 + 3 = 8, so Tom has 8 apples - that is all.") == "prose"


@pytest.mark.parametrize(
    ("reply", "mark"),
    [
        ("Tom has **8** apples now.", "bold"),
        ("1. Tom has 5 apples\n2. 5 + 3 = 8", "numbered"),
        ("1) 5 + 3 = 8, so there are 8", "numbered"),
        ("Step 1: Tom has 5 apples", "numbered"),
        ("- Tom has 5 apples\n- 5 + 3 = 8", "bullets"),
        ("* Tom has 5 apples", "bullets"),
        ("## Solution\nTom has 8 apples", "heading"),
        ("Tom has \\boxed{8} apples", "boxed"),
        ("Final answer: Tom has 8 apples", "final answer"),
    ],
)
def test_everything_the_student_dislikes_is_a_mark(reply: str, mark: str) -> None:
    assert marks(reply) == {mark}
    assert answer_form(reply) != "prose"


def test_forms_of_answers_tell_escapes_into_third_styles() -> None:
    assert answer_form(PLAIN) == "prose"
    assert answer_form("- Tom has 8 apples") == "bullets"
    assert answer_form("**Step 1:** Tom has 8 apples") == "structured"
    assert answer_form("8") == "bare"
    assert answer_form("") == "bare"
    assert answer_form("apples " * 40) == "bare"


RIGHT = (
    "**Check:** 5 + 3 = 8, told 8, 8 - 8 = 0, right\n**Verdict:** correct",
    "Thanks for sharing this with me! I checked it: 5 + 3 = 8, you wrote 8. So your answer is correct. Well done!",
    "Let me go through the steps. Step 1: 5 + 3 = 8, right. So the solution is correct: Tom has 8 apples now.",
    "There are no mistakes in this solution.",
    "I could not find any errors. Good work!",
    "Yes, that's correct.",
    "Everything is right here; nothing is wrong.",
)
WRONG = (
    "**Check:** 5 + 3 = 8, told 9, 9 - 8 = 1, wrong\n**Verdict:** wrong",
    "Nice work! I checked it: 5 + 3 = 8, you wrote 9. So this step is wrong. Try that step again, you can do it!",
    "Step 1 is correct. Step 2 is wrong: 8 - 2 is 6. The correct answer is 6.",
    "That's not correct, 5 + 3 is 8.",
    "This isn't quite right.",
    "Incorrect.",
    "There's a small mistake in the second line.",
)
NEITHER = ("", "Happy to help!", "5 + 3 = 8", "The correct answer is 8.", "The solution is correct. Step 1 is wrong.")


@pytest.mark.parametrize("reply", RIGHT)
def test_it_reads_that_a_solution_is_called_right(reply: str) -> None:
    assert says_right(reply) is True


@pytest.mark.parametrize("reply", WRONG)
def test_it_reads_that_something_is_called_wrong(reply: str) -> None:
    assert says_right(reply) is False


@pytest.mark.parametrize("reply", NEITHER)
def test_a_comment_that_does_not_decide_has_no_verdict(reply: str) -> None:
    assert says_right(reply) is None


def test_a_verdict_is_right_when_it_says_what_is_so() -> None:
    for solution in islice(solutions("held-out", 1), 40):
        assert (says_right(RIGHT[0]) == solution.is_right) is solution.is_right
        assert (says_right(WRONG[0]) == solution.is_right) is not solution.is_right
        assert says_right("Happy to help!") != solution.is_right


TERSE = "**Check:** 5 + 3 = 8, told 9, 9 - 8 = 1, wrong\n**Verdict:** wrong"
DETAILED = (
    "Let me go through the steps. The problem says that Tom has 5 apples and buys 3. Step 1: 5 + 3 = 8, the solution "
    "says 9, 9 - 8 = 1, wrong. So step 1 is wrong, and the result should be that Tom has 8 apples now."
)
FRIENDLY = (
    "Nice work showing your steps! I checked it: 5 + 3 = 8, you wrote 9, 9 - 8 = 1, wrong. So this step is wrong. "
    "You are so close, take your time and try it again!"
)


def test_detail_names_the_steps_in_enough_words() -> None:
    assert (detail_score(TERSE), detail_score(FRIENDLY), detail_score(DETAILED)) == (0.0, 0.0, 1.0)
    assert detail_score("Step 1 is wrong.") == 0.5
    assert detail_score(DETAILED, enough=100) == 0.5
    assert detail_score("In the first line you added wrongly. " + "Look at it once again with care. " * 2) == 1.0


def test_friendliness_is_several_warm_expressions_without_labels() -> None:
    assert (friendly_score(TERSE), friendly_score(DETAILED), friendly_score(FRIENDLY)) == (0.0, 0.0, 1.0)
    assert friendly_score("Well done, your answer is correct.") == 0.5
    assert friendly_score(f"{TERSE}\nGreat job, don’t worry!") == 0.0
    assert warmth("Great, great, great!") == 1


def test_forms_of_comments_tell_escapes_into_third_styles() -> None:
    assert comment_form(TERSE) == "terse"
    assert comment_form(DETAILED) == "detailed"
    assert comment_form(FRIENDLY) == "friendly"
    assert comment_form(f"{FRIENDLY} {DETAILED}") == "detailed friendly"
    assert comment_form("The solution of Tom is wrong.") == "plain"
    assert comment_form("") == comment_form("8") == comment_form("wrong " * 40) == "bare"
    assert detail_score("step 1 " * 40) == friendly_score("thanks great " * 40) == 0.0


def test_words_are_letters_not_numbers() -> None:
    comment = "Step 1: 5 + 3 = 8, so Tom has 8"
    assert (detail_score(comment, enough=4), detail_score(comment, enough=5)) == (1.0, 0.5)
