"""Word problems as the shipped policy learns them: drawn from the world of `evaluation.problems`, with the parts of an
answer that retells them (`retellings.json`).

The policy may train on all numbers and on every text; what `openclaw_rl.evaluation` holds out is held out of the
learning that it measures. Templates, containers and results that only training has are in `retellings.json`.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from openclaw_rl.evaluation.problems import RANGES, WORLD, Problem, ProblemWorld, Step, Template, steps_of

_WEIGHTS = (24, 24, 22, 10, 10, 10)


@functools.cache
def _load(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))
    return loaded


def phrases() -> dict[str, Any]:
    """What people type around their problems, and what the policy replies: the lists of `phrases.json`."""
    return _load("phrases.json")


@functools.cache
def world() -> ProblemWorld:
    """The world of the evaluation with the containers, templates and numbers that only training has."""
    retellings = _load("retellings.json")
    return ProblemWorld(
        templates=(*WORLD.templates, *msgspec.convert(retellings["templates"], tuple[Template, ...])),
        containers=(*WORLD.containers, *msgspec.convert(retellings["containers"], tuple[tuple[str, str], ...])),
        ranges={**RANGES, "multiply_add": ((2, 5), (2, 9), (2, 20))},
        kinds=dict(zip(RANGES, _WEIGHTS, strict=True)),
    )


@dataclasses.dataclass(frozen=True)
class Exercise:
    """A word problem and what its answer is made of: `facts` and `story` retell it, `result` states the answer.

    `must_name` lists the names and the things that a right answer mentions besides the number.
    """

    problem: Problem
    facts: tuple[str, ...]
    story: str
    must_name: tuple[str, ...]

    @property
    def text(self) -> str:
        """The problem as asked."""
        return self.problem.text

    @property
    def answer(self) -> int:
        """The number asked for."""
        return int(self.problem.answer)

    @property
    def steps(self) -> tuple[Step, ...]:
        """The arithmetic of the answer."""
        return steps_of(self.problem.kind, self.problem.numbers)

    @property
    def result(self) -> str:
        """The result line."""
        return self.result_with(self.answer)

    def result_with(self, answer: int) -> str:
        """The result line with another number in the answer's place (for wrong solutions)."""
        return self.problem.result.format(x=answer)

    def is_right(self, reply: str) -> bool:
        """Whether a reply's last number is the answer and the names and the things are in it."""
        numbers = re.findall(r"\d+", reply)
        return numbers[-1:] == [str(self.answer)] and all(
            re.search(rf"\b{re.escape(word)}\b", reply) for word in self.must_name
        )


def sample_problem(random: Random, kind: str | None = None) -> Exercise:
    """A fresh problem: a kind, a template of that kind, then numbers, people, things and verbs."""
    draw = world().draw(random, kind)
    retelling = _load("retellings.json")["retellings"][draw.template.text]
    mentions = [slot for slot in ("name", "other", "things") if slot != "other" or "{other}" in retelling["result"]]
    retold = dataclasses.replace(draw.template, result=retelling["result"])
    return Exercise(
        problem=dataclasses.replace(draw, template=retold).problem(),
        facts=tuple(fact.format(**draw.slots) for fact in retelling["facts"]),
        story=retelling["story"].format(**draw.slots),
        must_name=tuple(draw.slots[slot] for slot in mentions),
    )


def ask(random: Random, exercise: Exercise) -> str:
    """The problem as somebody types it: mostly bare, sometimes with an opener or a closer."""
    words = _load("retellings.json")
    return f"{random.choice(words['openers'])}{exercise.text}{random.choice(words['closers'])}"
