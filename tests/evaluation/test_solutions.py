from __future__ import annotations

from itertools import islice

import pytest

from openclaw_rl.evaluation.problems import KINDS, split_of, take
from openclaw_rl.evaluation.solutions import SLIPS, solutions, solve


def test_the_steps_of_every_kind_of_problem_come_to_its_answer() -> None:
    problems = take("train", 3, 300)
    assert {problem.kind for problem in problems} == set(KINDS)
    for problem in problems:
        steps = solve(problem)
        assert steps[-1].told == problem.answer
        for step in steps:
            assert eval(f"{step.left} {step.operator.replace('×', '*')} {step.right}") == step.told


def test_half_are_right_and_the_others_have_one_slip_that_is_carried_on() -> None:
    sampled = list(islice(solutions("train", 4), 600))
    wrong = [solution for solution in sampled if not solution.is_right]
    assert 0.42 < len(wrong) / len(sampled) < 0.58
    for solution in wrong:
        off = [step for step in solution.steps if step.told != step.value]
        assert len(off) == 1
        assert off[0].told - off[0].value in SLIPS
        assert solution.steps[-1].told != solution.problem.answer
        for before, after in zip(solution.steps, solution.steps[1:], strict=False):
            assert after.left == before.told
    assert {solution.wrong_step for solution in wrong} == {1, 2}


def test_what_is_written_has_the_steps_and_states_the_result_that_came_of_them() -> None:
    for solution in islice(solutions("held-out", 5), 200):
        for step in solution.steps:
            assert str(step) in solution.written
        assert solution.problem.result.format(x=solution.steps[-1].told) in solution.written
        assert "{" not in solution.written


def test_the_splits_share_no_numbers_and_a_seed_gives_the_same_again() -> None:
    for split in ("train", "held-out"):
        first = list(islice(solutions(split, 6), 100))
        assert first == list(islice(solutions(split, 6), 100))
        for solution in first:
            a, b, *_ = solution.problem.numbers
            assert split_of(solution.problem.kind, a, b) == split


def test_a_problem_without_numbers_has_no_steps() -> None:
    from openclaw_rl.evaluation.problems import Problem

    with pytest.raises(ValueError, match="no steps"):
        solve(Problem(text="Why?", answer=1, mentions=()))
