"""Word problems and solutions to grade: seeded, from one table of words and templates (`problems.toml`).

The embedded policy can work them out: sums up to 20 + 20, products of one-digit numbers, one or two steps. The numbers
of a problem alone decide its split, so the splits never share a pair of numbers of one kind, whatever the seeds; the
words are shared. `bench.shipped_policy` trains the embedded policy on problems of the same world.
"""

from __future__ import annotations

import tomllib
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, Literal

import msgspec

Split = Literal["train", "held-out"]
DATASET = "dataset"
"""The kind of a problem from a user's data set."""

_TABLE: dict[str, Any] = tomllib.loads(Path(__file__).with_name("problems.toml").read_text(encoding="utf-8"))
PEOPLE: tuple[str, ...] = tuple(_TABLE["people"])
THINGS: tuple[str, ...] = tuple(_TABLE["things"])
GAINS: tuple[str, ...] = tuple(_TABLE["gains"])
LOSSES: tuple[str, ...] = tuple(_TABLE["losses"])

KINDS = {"add": 5, "subtract": 5, "multiply": 4, "add_subtract": 2, "multiply_add": 2, "multiply_subtract": 2}
"""The frequency of each kind, relative to the others."""
OPERATORS = dict(zip(KINDS, ("+", "-", "×", "+-", "×+", "×-"), strict=True))
"""The operator of each step, by kind of problem."""
RANGES: dict[str, tuple[tuple[int, int], ...]] = {
    "add": ((2, 20), (2, 20)),
    "subtract": ((5, 30), (2, 30)),
    "multiply": ((2, 9), (2, 9)),
    "add_subtract": ((2, 20), (2, 20), (2, 20)),
    "multiply_add": ((2, 5), (3, 9), (2, 20)),
    "multiply_subtract": ((2, 5), (3, 9), (2, 20)),
}
"""Smallest and largest of each number, by kind of problem; a subtraction leaves at least `SMALLEST_RESULT`."""
SMALLEST_RESULT = 2
SLIPS = (-10, -3, -2, -1, 1, 2, 3, 10)


@dataclass(frozen=True)
class Template:
    """A problem with slots, as `problems.toml` explains them."""

    kind: str
    text: str
    result: str = ""
    mentions: tuple[str, ...] = ("name", "things")
    other_units: tuple[str, ...] = ()


@dataclass(frozen=True)
class Problem:
    """A word problem: its text, the number asked for, the words that a right answer has to mention, and units it does
    not ask for. `numbers` are those of the text in the order of its steps, `result` states the answer, with `{x}` in
    the number's place.
    """

    text: str
    answer: float
    mentions: tuple[str, ...]
    other_units: tuple[str, ...] = ()
    kind: str = ""
    numbers: tuple[int, ...] = ()
    result: str = ""


@dataclass(frozen=True)
class Step:
    """One line of arithmetic as a person wrote it: `left operator right = result`, right or wrong."""

    left: int
    operator: str
    right: int
    result: int

    @classmethod
    def correct(cls, left: int, operator: str, right: int) -> Step:
        """The step with its true result."""
        return cls(left, operator, right, {"+": left + right, "-": left - right, "×": left * right}[operator])

    @property
    def value(self) -> int:
        """The true value of the left side."""
        return self.correct(self.left, self.operator, self.right).result

    def __str__(self) -> str:
        return f"{self.left} {self.operator} {self.right} = {self.result}"


@dataclass(frozen=True)
class Draw:
    """A template with a value for each slot but the answer's, and the numbers among them."""

    template: Template
    slots: Mapping[str, Any]
    numbers: tuple[int, ...]

    def problem(self) -> Problem:
        """The problem it makes."""
        template, slots = self.template, self.slots
        return Problem(
            text=template.text.format(**slots),
            answer=steps_of(template.kind, self.numbers)[-1].result,
            mentions=tuple(slots[slot] for slot in template.mentions),
            other_units=tuple(unit.format(**slots) for unit in template.other_units),
            kind=template.kind,
            numbers=self.numbers,
            result=template.result.format(x="{x}", **slots),
        )


@dataclass(frozen=True)
class ProblemWorld:
    """The templates, containers and ranges of numbers that problems are drawn from."""

    templates: tuple[Template, ...]
    containers: tuple[tuple[str, str], ...]
    ranges: Mapping[str, tuple[tuple[int, int], ...]]
    kinds: Mapping[str, int]

    def draw(
        self, random: Random, kind: str | None = None, accepts: Callable[[str, tuple[int, ...]], bool] | None = None
    ) -> Draw:
        """Draw a template (of `kind`), numbers that `accepts(kind, numbers)` takes, and words."""
        kind = kind or random.choices(list(self.kinds), list(self.kinds.values()))[0]
        template = random.choice([template for template in self.templates if template.kind == kind])
        numbers = self._numbers(random, kind)
        while accepts is not None and not accepts(kind, numbers):
            numbers = self._numbers(random, kind)
        name, other = random.sample(PEOPLE, 2)
        box, boxes = random.choice(self.containers)
        words = {
            "name": name,
            "other": other,
            "things": random.choice(THINGS),
            "box": box,
            "boxes": boxes,
            "gain": random.choice(GAINS),
            "loss": random.choice(LOSSES),
        }
        return Draw(template, {**dict(zip("abc", numbers, strict=False)), **words}, numbers)

    def _numbers(self, random: Random, kind: str) -> tuple[int, ...]:
        first, *others = self.ranges[kind]
        value = random.randint(*first)
        numbers = [value]
        for operator, (low, high) in zip(OPERATORS[kind], others, strict=True):
            if operator == "-":
                high = min(high, value - SMALLEST_RESULT)
            numbers.append(random.randint(low, high))
            value = Step.correct(value, operator, numbers[-1]).result
        return tuple(numbers)


WORLD = ProblemWorld(
    templates=msgspec.convert(_TABLE["templates"], tuple[Template, ...]),
    containers=msgspec.convert(_TABLE["containers"], tuple[tuple[str, str], ...]),
    ranges=RANGES,
    kinds=KINDS,
)


def singular(things: str) -> str:
    """One of `things`."""
    return things.removesuffix("es") if things.endswith(("oes", "ches", "shes")) else things.removesuffix("s")


def split_of(kind: str, a: int, b: int) -> Split:
    """The split of a problem, by its numbers: about a quarter of all pairs is held out; a pair and its reverse stay
    together.
    """
    low, high = sorted((a, b))
    return "held-out" if zlib.crc32(f"{kind} {low} {high}".encode()) % 4 == 0 else "train"


def stream(split: Split, seed: int) -> Iterator[Problem]:
    """Problems of a split without end, no text twice; the same seed gives the same sequence."""
    random = Random(f"{split} {seed}")
    seen: set[str] = set()
    while True:
        problem = WORLD.draw(random, accepts=lambda kind, numbers: split_of(kind, *numbers[:2]) == split).problem()
        if problem.text not in seen:
            seen.add(problem.text)
            yield problem


def take(split: Split, seed: int, count: int) -> list[Problem]:
    """The first `count` problems of `stream`."""
    return list(islice(stream(split, seed), count))


@dataclass(frozen=True)
class Solution:
    """A problem, a person's steps, and the solution as it is written down (`written`)."""

    problem: Problem
    steps: tuple[Step, ...]
    written: str

    @property
    def is_right(self) -> bool:
        """True if every step is right."""
        return first_wrong(self.steps) is None


def first_wrong(steps: tuple[Step, ...]) -> int | None:
    """The first step with a wrong result, counted from 1; `None` if all are right."""
    return next((number for number, step in enumerate(steps, 1) if step.result != step.value), None)


def steps_of(kind: str, numbers: tuple[int, ...], *, slip_at: int | None = None, slip: int = 0) -> tuple[Step, ...]:
    """The steps of a problem; the result of step `slip_at` (from 1) is off by `slip`, which the later steps carry on.

    Raises `ValueError` where there are no numbers (the problem is from a data set).
    """
    if len(numbers) < 2:
        raise ValueError("no steps are known: the problem has no numbers")
    steps: list[Step] = []
    left = numbers[0]
    for number, (operator, right) in enumerate(zip(OPERATORS[kind], numbers[1:], strict=True), 1):
        step = Step.correct(left, operator, right)
        left = step.result + (slip if number == slip_at else 0)
        steps.append(Step(step.left, operator, right, left))
    return tuple(steps)


def attempt(random: Random, problem: Problem) -> tuple[Step, ...]:
    """A person's steps: right half of the time, else with one slip that is carried on to the end."""
    steps = steps_of(problem.kind, problem.numbers)
    if random.random() >= 0.5:
        return steps
    slip_at = random.randint(1, len(steps))
    fitting = [slip for slip in SLIPS if steps[slip_at - 1].result + slip >= SMALLEST_RESULT]
    return steps_of(problem.kind, problem.numbers, slip_at=slip_at, slip=random.choice(fitting))


def solutions(split: Split, seed: int) -> Iterator[Solution]:
    """Solutions of a split without end, no problem twice; the same seed gives the same sequence."""
    random = Random(f"solutions {split} {seed}")
    for problem in stream(split, seed):
        steps = attempt(random, problem)
        yield Solution(problem, steps, _written(random, problem, steps))


def _written(random: Random, problem: Problem, steps: tuple[Step, ...]) -> str:
    """The solution on paper: sometimes the facts, then the steps and a closing sentence, as a text or line by line."""
    facts = [fact.strip() for fact in problem.text.split(". ")[:-1]] if random.random() < 0.4 else []
    lines = [*facts, *map(str, steps), problem.result.format(x=steps[-1].result)]
    form = random.random()
    if form < 0.5:
        return " ".join(f"{line}." for line in lines)
    if form < 0.8:
        return "\n".join(lines)
    return "\n".join(f"{number}) {line}" for number, line in enumerate(lines, 1))
