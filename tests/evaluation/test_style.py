from __future__ import annotations

import pytest

from openclaw_rl.evaluation.style import form, marks, student_score

PLAIN = "Tom has 5 apples and buys 3 more. 5 + 3 = 8, so Tom has 8 apples now."


def test_plain_prose_scores_one() -> None:
    assert student_score(PLAIN) == 1.0
    assert student_score("5 + 3 = 8, so Tom has 8 apples - that is all.") == 1.0


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
def test_everything_the_student_dislikes_scores_zero(reply: str, mark: str) -> None:
    assert marks(reply) == {mark}
    assert student_score(reply) == 0.0


def test_forms_tell_escapes_into_third_styles() -> None:
    assert form(PLAIN) == "prose"
    assert form("- Tom has 8 apples") == "bullets"
    assert form("**Step 1:** Tom has 8 apples") == "structured"
    assert form("8") == "bare"
    assert form("") == "bare"
    assert form("apples " * 40) == "bare"
