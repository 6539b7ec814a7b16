from __future__ import annotations

import re

from openclaw_rl.evaluation.problems import split_of, stream, take


def test_the_same_seed_gives_the_same_problems_and_another_seed_others() -> None:
    assert take("train", 3, 20) == take("train", 3, 20)
    assert take("train", 3, 20) != take("train", 4, 20)


def test_no_text_comes_twice() -> None:
    texts = [problem.text for problem in take("held-out", 1, 300)]
    assert len(set(texts)) == 300


def test_held_out_numbers_are_never_practised_whatever_the_seed() -> None:
    def pairs(split: str, seed: int) -> set[tuple[str, frozenset[str]]]:
        problems = take(split, seed, 400)  # type: ignore[arg-type]
        return {(problem.kind, frozenset(re.findall(r"\d+", problem.text)[:2])) for problem in problems}

    practised = pairs("train", 1) | pairs("train", 2)
    held_out = pairs("held-out", 1) | pairs("held-out", 9)
    assert not practised & held_out
    assert len(held_out) > 100


def test_a_pair_and_its_reverse_are_in_one_split() -> None:
    assert all(split_of("add", a, b) == split_of("add", b, a) for a in range(2, 21) for b in range(2, 21))


def test_every_problem_can_be_worked_out_from_its_text() -> None:
    problems = stream("train", 5)
    for _ in range(300):
        problem = next(problems)
        numbers = [int(number) for number in re.findall(r"\d+", problem.text)]
        a, b, c = [*numbers, 0][:3]
        expected = {
            "add": a + b,
            "subtract": a - b,
            "multiply": a * b,
            "add_subtract": a + b - c,
            "multiply_add": a * b + c,
            "multiply_subtract": a * b - c,
        }[problem.kind]
        assert problem.answer == expected, problem.text
        assert problem.answer >= 1
        assert all(mention in problem.text for mention in problem.mentions)
