from __future__ import annotations

import re
from itertools import islice

import pytest

from openclaw_rl.evaluation.problems import (
    KINDS,
    SLIPS,
    Problem,
    first_wrong,
    solutions,
    split_of,
    steps_of,
    stream,
    take,
)


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


def test_the_steps_of_every_kind_of_problem_come_to_its_answer() -> None:
    problems = take("train", 3, 300)
    assert {problem.kind for problem in problems} == set(KINDS)
    for problem in problems:
        steps = steps_of(problem.kind, problem.numbers)
        assert steps[-1].result == problem.answer
        for step in steps:
            assert eval(f"{step.left} {step.operator.replace('×', '*')} {step.right}") == step.result


def test_half_are_right_and_the_others_have_one_slip_that_is_carried_on() -> None:
    sampled = list(islice(solutions("train", 4), 600))
    wrong = [solution for solution in sampled if not solution.is_right]
    assert 0.42 < len(wrong) / len(sampled) < 0.58
    for solution in wrong:
        off = [step for step in solution.steps if step.result != step.value]
        assert len(off) == 1
        assert off[0].result - off[0].value in SLIPS
        assert solution.steps[-1].result != solution.problem.answer
        for before, after in zip(solution.steps, solution.steps[1:], strict=False):
            assert after.left == before.result
    assert {first_wrong(solution.steps) for solution in wrong} == {1, 2}


def test_a_written_solution_has_its_steps_and_states_their_result() -> None:
    for solution in islice(solutions("held-out", 5), 200):
        for step in solution.steps:
            assert str(step) in solution.written
        assert solution.problem.result.format(x=solution.steps[-1].result) in solution.written
        assert "{" not in solution.written


def test_the_splits_share_no_numbers_and_a_seed_gives_the_same_again() -> None:
    for split in ("train", "held-out"):
        first = list(islice(solutions(split, 6), 100))
        assert first == list(islice(solutions(split, 6), 100))
        for solution in first:
            a, b, *_ = solution.problem.numbers
            assert split_of(solution.problem.kind, a, b) == split


def test_a_problem_without_numbers_has_no_steps() -> None:
    with pytest.raises(ValueError, match="no steps"):
        steps_of("", Problem(text="Why?", answer=1, mentions=()).numbers)
