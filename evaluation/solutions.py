"""Solutions to grade: a word problem and somebody's worked solution, right half of the time, else with one slip of
arithmetic that is carried on to the end.

Which split a solution belongs to is decided by the numbers of its problem (`evaluation.problems.split_of`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from openclaw_rl.evaluation.problems import Problem, Split, stream

OPERATORS = {
    "add": "+",
    "subtract": "-",
    "multiply": "×",
    "add_subtract": "+-",
    "multiply_add": "×+",
    "multiply_subtract": "×-",
}
"""The operator of each step, by kind of problem."""
SLIPS = (-10, -3, -2, -1, 1, 2, 3, 10)
SMALLEST_RESULT = 2


@dataclass(frozen=True)
class Step:
    """One line of arithmetic as somebody wrote it: `left operator right = told`."""

    left: int
    operator: str
    right: int
    told: int

    @property
    def value(self) -> int:
        """What the left side really comes to."""
        return worked_out(self.left, self.operator, self.right)

    def __str__(self) -> str:
        return f"{self.left} {self.operator} {self.right} = {self.told}"


@dataclass(frozen=True)
class Solution:
    """A problem, somebody's steps, and the solution as it is written down (`written`)."""

    problem: Problem
    steps: tuple[Step, ...]
    written: str

    @property
    def text(self) -> str:
        """The problem and the solution: what makes two tasks the same."""
        return f"{self.problem.text}\n{self.written}"

    @property
    def wrong_step(self) -> int | None:
        """The first step whose arithmetic is wrong, counted from 1; `None` if all is right."""
        return next((number for number, step in enumerate(self.steps, 1) if step.told != step.value), None)

    @property
    def is_right(self) -> bool:
        """Whether every step is right."""
        return self.wrong_step is None


def worked_out(left: int, operator: str, right: int) -> int:
    """The value of one step."""
    return {"+": left + right, "-": left - right, "×": left * right}[operator]


def solve(problem: Problem, *, slip_at: int | None = None, slip: int = 0) -> tuple[Step, ...]:
    """The steps of a problem; the result of step `slip_at` (from 1) is off by `slip`, which the later steps carry on.

    Raises `ValueError` for a problem without numbers (one from a data set).
    """
    if len(problem.numbers) < 2:
        raise ValueError(f"no steps are known for {problem.text!r}")
    steps: list[Step] = []
    left = problem.numbers[0]
    for number, (operator, right) in enumerate(zip(OPERATORS[problem.kind], problem.numbers[1:], strict=True), 1):
        told = worked_out(left, operator, right) + (slip if number == slip_at else 0)
        steps.append(Step(left, operator, right, told))
        left = told
    return tuple(steps)


def sample(random: Random, problem: Problem) -> Solution:
    """Somebody's solution of a problem."""
    steps = solve(problem)
    if random.random() < 0.5:
        slip_at = random.randint(1, len(steps))
        fitting = [slip for slip in SLIPS if steps[slip_at - 1].told + slip >= SMALLEST_RESULT]
        steps = solve(problem, slip_at=slip_at, slip=random.choice(fitting))
    return Solution(problem, steps, _written(random, problem, steps))


def _written(random: Random, problem: Problem, steps: tuple[Step, ...]) -> str:
    """The solution on paper: sometimes the facts, then the steps and a closing sentence, as a text or line by line."""
    facts = [fact.strip() for fact in problem.text.split(". ")[:-1]] if random.random() < 0.4 else []
    lines = [*facts, *map(str, steps), problem.result.format(x=steps[-1].told)]
    form = random.random()
    if form < 0.5:
        return " ".join(f"{line}." for line in lines)
    if form < 0.8:
        return "\n".join(lines)
    return "\n".join(f"{number}) {line}" for number, line in enumerate(lines, 1))


def solutions(split: Split, seed: int) -> Iterator[Solution]:
    """Solutions of a split without end, no problem twice; the same seed gives the same sequence."""
    random = Random(f"solutions {split} {seed}")
    for problem in stream(split, seed):
        yield sample(random, problem)
