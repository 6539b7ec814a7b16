from __future__ import annotations

import itertools

import pytest

from openclaw_rl.evaluation.problems import take
from openclaw_rl.evaluation.student import Student, dislikes

STRUCTURED = (
    "**Step 1:** Tom has 5 apples\n**Step 2:** 5 + 3 = 8\n\n**Final answer:** Tom has 8 apples now.\n\n\\boxed{8}"
)
PLAIN = "Tom has 5 apples and buys 3 more. 5 plus 3 is 8, so Tom has 8 apples now."


def test_he_asks_the_problem_as_it_is() -> None:
    student = Student(1)
    for problem in take("train", 1, 30):
        assert problem.text in student.ask(problem)


def test_he_complains_about_what_he_dislikes_and_thanks_when_content() -> None:
    student = Student(1)
    assert student.react(STRUCTURED).mood == "complaint"
    assert student.react("- Tom has 5 apples\n- 5 + 3 = 8").mood == "complaint"
    assert student.react(PLAIN).mood == "thanks"
    assert student.react(PLAIN, attempt=2).mood == "thanks"
    assert student.react(STRUCTURED, attempt=2).mood == "complaint"


@pytest.mark.parametrize("seed", range(5))
def test_his_words_vary(seed: int) -> None:
    student = Student(seed)
    said = [student.react(STRUCTURED).text for _ in range(24)]
    assert len(set(said)) >= 12
    assert all(first != second for first, second in itertools.pairwise(said))


def test_two_students_of_one_seed_say_the_same() -> None:
    first, second = Student(7), Student(7)
    assert [first.react(STRUCTURED) for _ in range(10)] == [second.react(STRUCTURED) for _ in range(10)]


def test_he_sees_each_thing_he_dislikes() -> None:
    assert dislikes(STRUCTURED) == ["bold", "numbered", "final answer", "boxed"]
    assert dislikes("1. Tom has 5") == ["numbered"]
    assert dislikes("* Tom has 5") == ["bullets"]
    assert dislikes(PLAIN) == []
