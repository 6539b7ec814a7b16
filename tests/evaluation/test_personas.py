from __future__ import annotations

import itertools

import pytest

from openclaw_rl.evaluation.personas import BASE, NAMES, WANTED, Student, create, take
from openclaw_rl.shared.errors import ConfigError
from tests.evaluation.pupil import PLAIN, STRUCTURED
from tests.evaluation.test_measures import DETAILED, FRIENDLY, TERSE

LIKED = {"student": PLAIN, "ta": DETAILED, "teacher": FRIENDLY}
DISLIKED = {
    "student": (STRUCTURED, "- Tom has 8 apples"),
    "ta": (TERSE, FRIENDLY, "Wrong."),
    "teacher": (TERSE, DETAILED, "Wrong."),
}


@pytest.mark.parametrize("name", NAMES)
def test_each_thanks_for_what_they_like_and_complains_about_the_rest(name: str) -> None:
    person = create(name, 1)
    for attempt in (1, 2):
        assert person.react(LIKED[name], attempt=attempt).mood == "thanks"
        for reply in DISLIKED[name]:
            assert person.react(reply, attempt=attempt).mood == "complaint"


@pytest.mark.parametrize("name", NAMES)
def test_the_measure_agrees_on_what_is_wanted_and_what_the_base_says(name: str) -> None:
    person = create(name, 1)
    assert person.score(LIKED[name]) == 1.0
    assert person.form(LIKED[name]) == WANTED
    assert person.form(DISLIKED[name][0]) == BASE
    for reply in DISLIKED[name]:
        assert person.score(reply) == 0.0
        assert person.form(reply) != WANTED


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(4))
def test_words_vary_and_a_seed_says_the_same_again(name: str, seed: int) -> None:
    first, second = create(name, seed), create(name, seed)
    said = [first.react(DISLIKED[name][0]).text for _ in range(24)]
    assert said == [second.react(DISLIKED[name][0]).text for _ in range(24)]
    assert len(set(said)) >= 10
    assert all(one != other for one, other in itertools.pairwise(said))


@pytest.mark.parametrize("name", NAMES)
def test_questions_carry_the_whole_task(name: str) -> None:
    person = create(name, 2)
    tasks = take(person, "held-out", 2, 30)
    assert tasks == take(create(name, 9), "held-out", 2, 30)
    for task in tasks:
        question = person.ask(task)
        if name == "student":
            assert task.text in question
        else:
            assert task.problem.text in question
            assert task.written in question


def test_an_unknown_persona_is_refused() -> None:
    with pytest.raises(ConfigError, match="student, ta, teacher"):
        create("parrot", 1)


def test_the_student_sees_each_thing_he_dislikes() -> None:
    seen = Student(1).flaws
    assert seen("**Step 1:** Tom has 5\n**Step 2:** 5 + 3 = 8\n\n**Final answer:** Tom has 8.\n\n\\boxed{8}") == [
        *("bold", "numbered", "final answer", "boxed")
    ]
    assert seen("1. Tom has 5") == ["numbered"]
    assert seen("* Tom has 5 apples\n* 5 + 3 = 8") == ["bullets"]
    assert seen(PLAIN) == []
