from __future__ import annotations

from itertools import islice

import pytest

from openclaw_rl.evaluation.grader import says_right
from openclaw_rl.evaluation.problems import solutions

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
